//! Load generator for the server's speed figures, over the wire protocol only.
