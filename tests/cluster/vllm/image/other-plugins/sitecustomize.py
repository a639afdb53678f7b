"""Start-up code of an image that decides itself which plugins vLLM loads: ours is not one of them."""

import os

os.environ["VLLM_PLUGINS"] = "lora_filesystem_resolver"
