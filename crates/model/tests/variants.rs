//! The variants that are small enough to be checked at every change.

use fencepost_model::catalogue::{self, Expected, Variant, Verdict};

fn check(which: fn(&Expected) -> bool) {
    let wanted = |variant: &Variant| variant.quick && which(&variant.expected);
    let variants: Vec<Variant> = catalogue::all().into_iter().filter(wanted).collect();
    assert!(variants.len() >= 5, "the catalogue is not empty");
    for variant in variants {
        let outcome = variant.check(1);
        assert_ne!(
            variant.verdict(&outcome),
            Verdict::Unexpected,
            "{}: {outcome:#?}",
            variant.name
        );
    }
}

#[test]
fn everything_holds_of_the_rules_as_they_are() {
    check(|expected| *expected == Expected::Holds);
}

#[test]
fn every_broken_rule_is_found_broken() {
    check(|expected| *expected != Expected::Holds);
}

#[test]
fn a_counter_example_is_told_in_steps_that_end_with_the_fault() {
    let all = catalogue::all();
    let variant = all.iter().find(|variant| variant.name == "no-quarantine");
    let fault = variant.unwrap().check(1).fault.unwrap();
    assert!(fault.story[0].starts_with("A asks all nodes"), "{fault:#?}");
    assert!(fault.story.iter().any(|line| line.contains("restarts")));
    assert!(fault.story.last().unwrap().contains("HAS THE LOCK"));
}
