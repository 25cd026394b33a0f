"""Client data: a federation from arrays, frames, files and loaders, checked at the door and split within each client."""
