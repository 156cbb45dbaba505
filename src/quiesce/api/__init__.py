"""The OpenAI dialect: requests read and checked, answers in its shape. It knows of no worker."""
