"""Between tokens and text: tokenizer, chat template, detokenising and the one text machine."""
