//! `count(DISTINCT text)` that holds the texts of a group and little more.
//!
//! `DataFusion` counts distinct integers of all groups in one set, and gives every other group a set of its own that begins with
//! 12 KB: a hundred thousand rollouts whose groups are counted take a gigabyte.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};

/// `DataFusion`'s count, but for distinct texts of groups.
pub(super) fn count() -> AggregateUDF {
    AggregateUDF::from(Count(count_udaf()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Count(Arc<AggregateUDF>);

/// The type of the texts that are counted, where it is texts.
fn texts(args: &AccumulatorArgs) -> Option<DataType> {
    let [field] = args.expr_fields else { return None };
    (args.is_distinct && field.data_type().is_string()).then(|| field.data_type().clone())
}

impl AggregateUDFImpl for Count {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.return_type(arg_types)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.create_sliding_accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        texts(&args).is_some() || self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match texts(&args) {
            Some(kind) => Ok(Box::new(DistinctTexts::new(kind))),
            None => self.0.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.0.default_value(data_type)
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.0.inner().value_from_stats(statistics)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.inner().set_monotonicity(data_type)
    }
}

/// The texts of each group.
struct DistinctTexts {
    kind: DataType,
    groups: Vec<HashSet<Box<str>>>,
    hashing: RandomState,
    /// Bytes of the sets and their texts, kept up to date because `size` is asked after every batch.
    heap: usize,
}

/// What a set takes for each text it has room for, and its allocation for each text it holds.
const PLACE: usize = size_of::<Box<str>>() + 1;
const ALLOCATION: usize = 8;

impl DistinctTexts {
    fn new(kind: DataType) -> Self {
        Self { kind, groups: Vec::new(), hashing: RandomState::new(), heap: 0 }
    }

    fn grow(&mut self, groups: usize) {
        let groups = groups.max(self.groups.len());
        self.groups.resize_with(groups, || HashSet::with_hasher(self.hashing.clone()));
    }

    fn add(&mut self, group: usize, text: &str) -> Result<()> {
        let Some(set) = self.groups.get_mut(group) else {
            return internal_err!("group {group} is unknown");
        };
        if !set.contains(text) {
            let before = set.capacity();
            set.insert(text.into());
            self.heap += (set.capacity() - before) * PLACE + text.len() + ALLOCATION;
        }
        Ok(())
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<HashSet<Box<str>>> {
        let taken = emit_to.take_needed(&mut self.groups);
        let heap = |set: &HashSet<Box<str>>| {
            set.capacity() * PLACE + set.iter().map(|text| text.len() + ALLOCATION).sum::<usize>()
        };
        self.heap -= taken.iter().map(heap).sum::<usize>();
        taken
    }

    fn state_of<'a>(&self, groups: impl Iterator<Item = impl Iterator<Item = &'a str>>) -> Result<ArrayRef> {
        let item = |kind: &DataType| Field::new_list_field(kind.clone(), true);
        let mut lists = ListBuilder::new(StringBuilder::new()).with_field(item(&DataType::Utf8));
        for texts in groups {
            texts.for_each(|text| lists.values().append_value(text));
            lists.append(true);
        }
        Ok(cast(&lists.finish(), &DataType::List(Arc::new(item(&self.kind))))?)
    }
}

fn as_texts(values: &[ArrayRef]) -> Result<StringArray> {
    let [values] = values else { return internal_err!("count takes one column of texts") };
    Ok(cast(values, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// The text of a row that counts: it is not null and the filter, if there is one, is true.
fn counted<'a>(texts: &'a StringArray, filter: Option<&BooleanArray>, row: usize) -> Option<&'a str> {
    let counts = texts.is_valid(row) && filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
    counts.then(|| texts.value(row))
}

impl GroupsAccumulator for DistinctTexts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let texts = as_texts(values)?;
        let rows = group_indices.iter().enumerate();
        rows.filter_map(|(row, &group)| Some((group, counted(&texts, opt_filter, row)?)))
            .try_for_each(|(group, text)| self.add(group, text))
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.grow(total_num_groups);
        let [lists] = values else { return internal_err!("the state of a count is one column") };
        let lists: &ListArray = lists.as_list();
        let texts = as_texts(&[Arc::clone(lists.values())])?;
        for (row, &group) in group_indices.iter().enumerate().filter(|(row, _)| lists.is_valid(*row)) {
            let [start, end] = [row, row + 1].map(|row| lists.value_offsets()[row].unsigned_abs() as usize);
            (start..end).filter_map(|item| counted(&texts, None, item)).try_for_each(|text| self.add(group, text))?;
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let counts = self.take(emit_to).into_iter().map(|set| i64::try_from(set.len()).unwrap_or(i64::MAX));
        Ok(Arc::new(counts.collect::<Int64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take(emit_to);
        let texts = groups.iter().map(|set| set.iter().map(AsRef::as_ref));
        Ok(vec![self.state_of(texts)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let texts = as_texts(values)?;
        let rows = (0..texts.len()).map(|row| counted(&texts, opt_filter, row).into_iter());
        Ok(vec![self.state_of(rows)?])
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<HashSet<Box<str>>>() + self.heap
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Int64Type;
    use rstest::rstest;

    use super::*;

    fn counts(array: &ArrayRef) -> Vec<i64> {
        array.as_primitive::<Int64Type>().values().to_vec()
    }

    // By hand: group 0 has a, b, a; group 1 a and a null; group 2 nothing.
    fn rows(kind: &DataType) -> (Vec<ArrayRef>, Vec<usize>) {
        let texts = StringArray::from(vec![Some("a"), Some("a"), Some("b"), None, Some("a")]);
        (vec![cast(&texts, kind).unwrap()], vec![0, 1, 0, 1, 0])
    }

    #[rstest]
    fn texts_of_groups_are_counted_apart(
        #[values(DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View)] kind: DataType,
    ) {
        let (values, groups) = rows(&kind);
        let mut texts = DistinctTexts::new(kind.clone());
        texts.update_batch(&values, &groups, None, 3).unwrap();
        let states = texts.state(EmitTo::All).unwrap();
        assert_eq!(states[0].data_type(), &DataType::List(Arc::new(Field::new_list_field(kind.clone(), true))));
        assert_eq!(texts.heap, 0);
        // The states of the same rows one by one, merged with those.
        let single = texts.convert_to_state(&values, None).unwrap();
        texts.merge_batch(&states, &[0, 1, 2], 3).unwrap();
        texts.merge_batch(&single, &groups, 3).unwrap();
        assert_eq!(counts(&texts.evaluate(EmitTo::First(1)).unwrap()), [2]);
        assert_eq!(counts(&texts.evaluate(EmitTo::All).unwrap()), [1, 0]);
        assert_eq!(texts.heap, 0);
    }

    #[test]
    fn a_filter_leaves_rows_out() {
        let (values, groups) = rows(&DataType::Utf8);
        let filter = BooleanArray::from(vec![Some(true), Some(false), Some(false), Some(true), None]);
        let mut texts = DistinctTexts::new(DataType::Utf8);
        texts.update_batch(&values, &groups, Some(&filter), 2).unwrap();
        assert_eq!(counts(&texts.evaluate(EmitTo::All).unwrap()), [1, 0]);
    }

    #[test]
    fn a_group_of_one_text_holds_little() {
        let values: StringArray = (0..10_000).map(|n| Some(format!("rollout-{n}"))).collect();
        let groups: Vec<usize> = (0..values.len()).collect();
        let mut texts = DistinctTexts::new(DataType::Utf8);
        texts.update_batch(&[Arc::new(values)], &groups, None, groups.len()).unwrap();
        assert!(texts.size() / groups.len() < 256, "{}", texts.size());
    }
}
