//! The embedding example is run, not only built: it is the first thing people try.

use std::process::Command;

#[test]
fn the_example_finishes_what_the_crash_interrupted() {
    let mut example = Command::new(env!("CARGO"));
    example.args(["run", "--quiet", "--package", "tenure-core", "--example", "embed"]);
    let output = example.output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("crash while 2 nodes are held"), "{said}");
    assert!(said.ends_with("the run is completed\n"), "{said}");
    for node in 0..4 {
        assert_eq!(said.matches(&format!("node {node} under")).count(), 1, "every node runs once: {said}");
    }
}
