/// `label`, followed by a number if it is taken.
pub(crate) fn distinct(label: &str, taken: &mut Vec<String>) -> String {
    let mut wanted = label.to_owned();
    // A title has few tracks, so trying numbers is fast enough.
    let mut number = 2;
    while taken.contains(&wanted) {
        wanted = format!("{label} {number}");
        number += 1;
    }
    taken.push(wanted.clone());
    wanted
}
