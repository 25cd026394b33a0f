"""What people look at: figures, pages, the explorer."""
