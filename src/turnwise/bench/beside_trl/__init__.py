"""`turnwise bench train --trl`: an update and a fine-tuning beside TRL's, on the same model, data and device."""
