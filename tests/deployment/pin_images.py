"""`scripts/pin-images` as a module."""

import importlib.machinery
import importlib.util

import program

PATH = program.ROOT / "scripts" / "pin-images"
loader = importlib.machinery.SourceFileLoader("pin_images_script", str(PATH))
spec = importlib.util.spec_from_loader(loader.name, loader)
script = importlib.util.module_from_spec(spec)
loader.exec_module(script)
unpinned = script.unpinned
