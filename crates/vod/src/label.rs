/// `label`, or with a number after it where it is taken.
pub(crate) fn distinct(label: &str, taken: &mut Vec<String>) -> String {
    let mut wanted = label.to_owned();
    // A title has few tracks.
    let mut number = 2;
    while taken.contains(&wanted) {
        wanted = format!("{label} {number}");
        number += 1;
    }
    taken.push(wanted.clone());
    wanted
}
