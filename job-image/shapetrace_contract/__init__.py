"""What the processes of one run agree on: names, files, object keys, messages, exit codes.

Standard library only, Python 3.10 and later: this package travels into engine images that know nothing of us.
The prose form is docs/contract.md; a change here is a decision noted in docs/decisions.
"""

VERSION = 1
"""Version of the contract; every JSON object that crosses a process carries it as ``v``."""
