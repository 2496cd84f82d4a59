"""One command, one Lua file; its header is its interface. Files that hold functions only are included by others."""
