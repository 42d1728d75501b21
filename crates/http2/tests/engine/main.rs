//! Frame scripts: a peer that sends and expects single frames, and the engine under test between them; and pairs of engines.

mod support;

mod bulk;
mod closing;
mod content;
mod credit;
mod credit_wait;
mod flow_control;
mod frames;
mod header_blocks;
mod limits;
mod memory;
mod messages;
mod pairs;
mod path;
mod pulse;
mod random;
mod resting;
mod scheduling;
mod settings;
mod stream_states;
mod tuning;
