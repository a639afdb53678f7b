"""One file per engine: everything that only that engine has. Imported when the engine asks for its plugin."""
