//! What operators of one input have in common.

/// The methods of an operator that has an `input` and no expression; `$over` makes the same operator over another input.
macro_rules! one_input {
    ($over:expr) => {
        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![&self.input]
        }

        fn apply_expressions(
            &self,
            _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
        ) -> Result<TreeNodeRecursion> {
            Ok(TreeNodeRecursion::Continue)
        }

        fn replace_children(
            self: Arc<Self>,
            mut children: Vec<Arc<dyn ExecutionPlan>>,
            _options: ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let over: fn(&Self, Arc<dyn ExecutionPlan>) -> Result<Self> = $over;
            match (children.pop(), children.is_empty()) {
                (Some(input), true) => Ok(Arc::new(over(&self, input)?)),
                _ => internal_err!("{} has one input", self.name()),
            }
        }

        fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
            self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
        }
    };
}

/// The same for an operator that gives as many rows as it takes in, and has a method `over`.
macro_rules! same_rows {
    () => {
        $crate::same_rows::one_input!(|own, input| Ok(own.over(input)));

        fn statistics_from_inputs(
            &self,
            input_stats: &[Arc<Statistics>],
            _args: &datafusion::physical_plan::statistics::StatisticsArgs,
        ) -> Result<Arc<Statistics>> {
            match input_stats.first() {
                Some(statistics) => Ok(Arc::clone(statistics)),
                None => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
            }
        }

        fn child_stats_requests(
            &self,
            partition: Option<usize>,
        ) -> Vec<datafusion::physical_plan::statistics::ChildStats> {
            vec![datafusion::physical_plan::statistics::ChildStats::At(partition)]
        }
    };
}

pub(crate) use {one_input, same_rows};
