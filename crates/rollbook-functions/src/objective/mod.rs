//! Objectives: how the losses of tokens become the loss of a step.

mod agg_loss;

pub(crate) use agg_loss::AGG_LOSS;
