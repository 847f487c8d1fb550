//! The codec against cases worked by hand, a naive oracle on random rollouts, and a real run.

mod by_hand;
mod calculator;
mod corrupt;
mod oracle;
mod property;
mod requests;
mod rows;
