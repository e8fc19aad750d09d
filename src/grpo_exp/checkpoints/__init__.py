"""Checkpoints as folders: complete or not there, which one to go on from, which ones to keep. No torch in here."""
