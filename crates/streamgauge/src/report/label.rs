//! Text on figures: its width, and places where it does not cover other text.

/// A rectangle on the page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Box {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Box {
    /// Whether both share more than an edge.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Whether the other rectangle is inside.
    pub(super) fn holds(&self, other: &Self) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }
}

/// Estimates the width of a text, in the widest of the possible fonts (DejaVu Sans). The font
/// cannot be asked, because the reader's program chooses it.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Width of a letter in ems.
fn advance(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '\'' | '|' => 0.29,
        ' ' | ',' | '.' | '/' | ':' | ';' | '!' | 'I' | '-' | '(' | ')' | '[' | ']' | 'f' | 't'
        | 'r' => 0.41,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '—' | '…' => 1.0,
        'A'..='Z' => 0.74,
        ' '..='~' | '–' | '·' | 'µ' | '†' | '‡' => 0.64,
        letter if (letter as u32) < 0x0530 => 0.74,
        _ => 1.05,
    }
}

/// Shortens a text to a width, with an ellipsis where letters are left out.
pub(super) fn fit(text: &str, size: f64, widest: f64) -> String {
    if width(text, size) <= widest {
        return text.to_owned();
    }
    let mut used = width("…", size);
    let fits = |letter: &char| {
        used += advance(*letter) * size;
        used <= widest
    };
    let kept: String = text.chars().take_while(fits).collect();
    kept.trim_end().to_owned() + "…"
}

/// Moves labels apart and keeps their order. No label is nearer to the next than `apart`, and all
/// lie between `top` and `bottom`. `None` if there is no room.
pub(super) fn spread(wanted: &[f64], apart: f64, (top, bottom): (f64, f64)) -> Option<Vec<f64>> {
    let needed = apart * wanted.len().saturating_sub(1) as f64;
    if needed > bottom - top {
        return None;
    }
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = vec![0.0; wanted.len()];
    // First downwards, so that each label is below the one before. Then upwards from the bottom,
    // which may have pushed some out.
    let mut least = top;
    for &index in &order {
        places[index] = wanted[index].clamp(least, bottom.max(least));
        least = places[index] + apart;
    }
    let mut most = bottom;
    for &index in order.iter().rev() {
        places[index] = places[index].min(most);
        most = places[index] - apart;
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_moved_apart_and_kept_in_order() {
        let places = spread(&[50.0, 49.0, 98.0, 99.0], 10.0, (0.0, 100.0)).unwrap();
        assert_eq!(places, [59.0, 49.0, 90.0, 100.0]);
        assert_eq!(spread(&[1.0, 2.0, 3.0], 60.0, (0.0, 100.0)), None);
        assert_eq!(spread(&[], 60.0, (0.0, 100.0)), Some(vec![]));
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(fit("nginx", 12.0, 100.0), "nginx");
        let cut = fit(&"m".repeat(1000), 12.0, 100.0);
        assert!(cut.ends_with('…') && width(&cut, 12.0) <= 100.0, "{cut}");
    }
}
