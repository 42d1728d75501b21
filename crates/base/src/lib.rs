//! The ground of Fulmar: time, buffers, pools, keys, and the seams between its engines and the world.
