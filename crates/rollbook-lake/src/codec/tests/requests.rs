//! Requests are stored without the messages they share, and come back byte for byte.

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use proptest::prelude::*;
use rstest::rstest;

use super::rows::{Case, decode_by, encode, int, text};
use crate::codec::request::split;

fn suffixes(stored: &RecordBatch) -> Vec<Option<Vec<String>>> {
    let lists = stored.column_by_name("messages_suffix").unwrap().as_list::<i32>();
    let texts = |list: ArrayRef| list.as_string::<i32>().iter().map(|text| text.unwrap().to_owned()).collect();
    lists.iter().map(|list| list.map(texts)).collect()
}

#[test]
fn messages_are_stored_once() {
    let (system, user, reply) =
        (r#"{"role":"system","content":"\u00e9"}"#, r#"{"n":1.0e2}"#, r#"{"role":"assistant"}"#);
    let calls = [
        Case::new("a", 0, &[1], &[2]).request(&format!(r#"{{"model":"m","messages":[{system},{user}],"n":1}}"#)),
        Case::new("b", 1, &[1, 2, 3], &[4]).request(&format!(r#"{{"messages":[{system},{user},{reply}]}}"#)),
        Case::new("c", 2, &[1, 2, 3, 4], &[])
            .request(&format!(r#"{{"messages":[{system},{reply}],"x":{{"messages":3}}}}"#)),
        Case::new("d", 3, &[99], &[]).request(&format!(r#"{{"messages":[{system}]}}"#)),
        Case::new("e", 4, &[1], &[]).request(r#"{"messages":[]}"#),
    ];
    let stored = encode(&calls);
    let requests = text(&stored, "request");
    assert_eq!(requests[0].as_deref(), Some(r#"{"model":"m","messages":[],"n":1}"#));
    assert_eq!(requests[2].as_deref(), Some(r#"{"messages":[],"x":{"messages":3}}"#));
    // The fourth prompt shares no token, so it has no base to take messages from.
    assert_eq!(int(&stored, "messages_base_len"), [Some(0), Some(2), Some(1), Some(0), Some(0)]);
    let own = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(suffixes(&stored), [own(&[system, user]), own(&[reply]), own(&[reply]), own(&[system]), own(&[])]);
    let rebuilt = text(&decode_by(&stored, 2, 1), "request");
    assert_eq!(rebuilt, calls.iter().map(|call| call.request.clone()).collect::<Vec<_>>());
    // From Python: hashlib.sha256(b'{"messages":[]}').
    let digest = "sha256:5e4ce7b36ba37b78a5d5f9fd08e6b7b54ba6879d651aa46ec9e1d6fa24ebe30a";
    assert_eq!(text(&stored, "request_digest")[4].as_deref(), Some(digest));
}

#[test]
fn unknown_prompts_take_messages_from_the_call_before() {
    let call =
        |id: &str, index: i32, request: &str| Case { prompt: None, ..Case::new(id, index, &[], &[]) }.request(request);
    let calls = [
        call("a", 0, r#"{"messages":["s"]}"#),
        call("b", 1, r#"{"messages":["s","t"]}"#),
        call("c", 2, r#"{"messages":["s","u"]}"#).parent("a"),
        call("d", 3, r#"{"messages":["other"]}"#),
    ];
    let stored = encode(&calls);
    assert_eq!(int(&stored, "base_index"), [None, Some(0), Some(0), None]);
    assert_eq!(int(&stored, "base_len"), [None; 4]);
    assert_eq!(int(&stored, "messages_base_len"), [Some(0), Some(1), Some(1), Some(0)]);
    let rebuilt = text(&decode_by(&stored, 1, 1), "request");
    assert_eq!(rebuilt, calls.iter().map(|call| call.request.clone()).collect::<Vec<_>>());
}

#[rstest]
#[case::no_object(r#"["messages"]"#)]
#[case::no_messages(r#"{"prompt":"x"}"#)]
#[case::no_array(r#"{"messages":{"a":[]}}"#)]
#[case::null(r#"{"messages":null}"#)]
#[case::twice(r#"{"messages":[1],"messages":[2]}"#)]
#[case::blanks_between(r#"{"messages":[1, 2]}"#)]
#[case::blank_inside(r#"{"messages":[ ]}"#)]
#[case::broken(r#"{"messages":[1]"#)]
#[case::more_behind(r#"{"messages":[1]}{}"#)]
#[case::empty("")]
fn what_would_not_come_back_is_left_whole(#[case] request: &str) {
    assert_eq!(split(request), None);
    let stored = encode(&[Case::new("a", 0, &[1], &[2]).request(request)]);
    assert_eq!((int(&stored, "messages_base_len"), suffixes(&stored)), (vec![None], vec![None]));
    assert_eq!(text(&stored, "request")[0].as_deref(), Some(request));
    assert_eq!(text(&decode_by(&stored, 1, 1), "request")[0].as_deref(), Some(request));
}

#[test]
fn deep_nesting_is_no_stack() {
    let deep = format!(r#"{{"messages":[{}{}]}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let stored = encode(&[Case::new("a", 0, &[1], &[2]).request(&deep)]);
    assert_eq!(text(&decode_by(&stored, 1, 1), "request")[0].as_deref(), Some(deep.as_str()));
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1.0".to_owned()),
        Just("1e400".to_owned()),
        Just("12345678901234567890123".to_owned()),
        Just(r#""\ud83d\ude00,[]{}\"""#.to_owned()),
        Just(r#""é""#.to_owned()),
        Just("null".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop_oneof![Just("messages"), Just("a"), Just(r"m\u0065ssages")];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((key, inner), 0..4).prop_map(|members| {
                let members: Vec<String> = members.iter().map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_comes_back(requests in prop::collection::vec(prop_oneof![value(), ".{0,20}"], 1..6)) {
        let calls: Vec<Case> = requests.iter().map(|request| Case::new("a", 0, &[1], &[]).request(request)).collect();
        let rebuilt = text(&decode_by(&encode(&calls), 2, 20), "request");
        prop_assert_eq!(rebuilt.into_iter().flatten().collect::<Vec<_>>(), requests);
    }
}
