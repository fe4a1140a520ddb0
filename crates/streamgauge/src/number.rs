//! Writes numbers: with a comma between thousands, and without meaningless digits.

/// Larger numbers are written with powers of ten, and no axis reaches them.
const HUGE: f64 = 1e12;

/// Writes `digits` decimals, and a comma between thousands: `12,374.71`.
pub(crate) fn fixed(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value.abs() >= HUGE {
        return format!("{value:.2e}");
    }
    let text = format!("{:.digits$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::with_capacity(text.len() + 6);
    // A number that is rounded to zero has no sign.
    if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
        grouped.push('−');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Writes three significant digits, and no decimals from 100 on.
pub(crate) fn sensible(value: f64) -> String {
    fixed(value, sensible_digits(value))
}

fn sensible_digits(value: f64) -> usize {
    match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        0.0 => 0,
        size if size >= 0.09995 => 3,
        size if size >= 0.009995 => 4,
        _ => 5,
    }
}

/// Writes a parameter or tick as it was given, without zeros at the end.
pub(crate) fn plain(value: f64) -> String {
    if value.abs() >= HUGE {
        return format!("{value:e}");
    }
    let text = fixed(value, 6);
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// How many decimals a value was written with, at most six. Zeros at the end do not count.
pub(crate) fn decimals(value: f64) -> usize {
    plain(value).split_once('.').map_or(0, |(_, digits)| digits.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (value, digits, text) in [
            (0.0, 0, "0"),
            (999.0, 0, "999"),
            (1000.0, 0, "1,000"),
            (12_374.71, 2, "12,374.71"),
            (1_234_567.0, 0, "1,234,567"),
            (-1234.5, 1, "−1,234.5"),
            (-0.001, 2, "0.00"),
            (f64::NAN, 2, "–"),
            (1e300, 0, "1.00e300"),
        ] {
            assert_eq!(fixed(value, digits), text, "{value}");
        }
    }

    #[test]
    fn three_digits_count() {
        for (value, text) in
            [(1234.5, "1,234"), (99.96, "100"), (12.34, "12.3"), (1.0, "1.00"), (0.0123, "0.0123")]
        {
            assert_eq!(sensible(value), text, "{value}");
        }
        assert_eq!((plain(0.5), plain(400.0)), ("0.5".to_owned(), "400".to_owned()));
        assert_eq!(plain(1e20), "1e20");
        assert_eq!([decimals(12_374.71), decimals(0.17), decimals(5.0)], [2, 2, 0]);
    }
}
