//! Horizontal bars. Names are beside them and values at their ends, so no legend is needed.

use maud::html;

use super::super::axis::{Placed, is_shown};
use super::super::label;
use super::super::plot::{Bar, Bars};
use super::page::{self, Anchor, Number, Page, Text};
use super::{Frame, HEADING, TEXT};

/// Distance from one bar to the next.
const ROW: f64 = 22.0;
const THICK: f64 = 14.0;

pub(super) fn draw(bars: &Bars, frame: &Frame<'_>) -> Page {
    let rows = bars.groups.iter().map(|(name, bars)| bars.len() + usize::from(!name.is_empty()));
    let top = if frame.heading { 30.0 } else { 8.0 };
    let gaps = 6.0 * bars.groups.len() as f64;
    let bottom = top + ROW * rows.sum::<usize>() as f64 + gaps;
    let mut page = Page::new(frame.width, bottom + 42.0);
    if frame.heading {
        let heading = label::fit(frame.title, HEADING * 1.1, frame.width - 8.0);
        page.write(&Text::heading(&heading, 4.0, 17.0));
    }
    let axis = place(bars, frame);
    draw_axis(&mut page, bars, &axis, (top, bottom));
    let mut y = top;
    for (name, group) in &bars.groups {
        y += 6.0;
        if !name.is_empty() {
            let name = label::fit(name, TEXT * 1.1, frame.width - 8.0);
            page.write(&Text { bold: true, ..Text::new(&name, 4.0, y + 15.0) });
            y += ROW;
        }
        for bar in group {
            draw_bar(&mut page, bar, &axis, y);
            y += ROW;
        }
    }
    page
}

/// Places the axis between the names and the values.
fn place(bars: &Bars, frame: &Frame<'_>) -> Placed {
    let all = || bars.groups.iter().flat_map(|(_, bars)| bars);
    let widest =
        |of: fn(&Bar) -> &str| all().map(|bar| label::width(of(bar), TEXT)).fold(0.0, f64::max);
    let left = widest(|bar| &bar.label).min(frame.width * 0.35) + 14.0;
    let right = frame.width - widest(|bar| &bar.text).clamp(20.0, frame.width * 0.25) - 14.0;
    let values = all().flat_map(|bar| [bar.low, bar.value, bar.high]);
    let count = ((right - left) / 85.0).clamp(2.0, 8.0) as usize;
    bars.axis.place(values.chain([0.0]), (left, right), count)
}

fn draw_axis(page: &mut Page, bars: &Bars, axis: &Placed, (top, bottom): (f64, f64)) {
    for (value, label) in &axis.ticks {
        let x = axis.at(*value);
        page.back(page::line((x, top), (x, bottom), "#e4e4e4", 1.0));
        let text = Text::new(label, x, bottom + 16.0).anchored(Anchor::Middle);
        let area = label::Box { left: 0.0, top: 0.0, right: page.width, bottom: page.height };
        if page.has_room(&text, &area) {
            page.write(&text);
        }
    }
    let zero = axis.at(0.0);
    page.back(page::line((zero, top), (zero, bottom), "#6b6b6b", 1.0));
    let title = label::fit(&bars.axis.title, TEXT, page.width - 8.0);
    let half = label::width(&title, TEXT) / 2.0;
    let middle = f64::midpoint(axis.from, axis.to).min(page.width - half - 4.0).max(half + 4.0);
    let text = Text::new(&title, middle, page.height - 7.0).anchored(Anchor::Middle);
    page.write(&Text { colour: "#4d4d4d", ..text });
}

fn draw_bar(page: &mut Page, bar: &Bar, axis: &Placed, y: f64) {
    let name = label::fit(&bar.label, TEXT, axis.from - 12.0);
    page.write(&Text::new(&name, axis.from - 8.0, y + 15.0).anchored(Anchor::End));
    if !is_shown(bar.value, bars_scale()) {
        return;
    }
    let (zero, end) = (axis.at(0.0), axis.at(bar.value));
    let colour = bar.style.colour();
    let fill = if bar.style.published { "#fff" } else { colour };
    let dash = (bar.style.published || bar.doubt.is_some()).then_some("4 3");
    let middle = y + ROW / 2.0;
    page.shape(html! {
        rect x=(Number(zero.min(end))) y=(Number(middle - THICK / 2.0))
            width=(Number((end - zero).abs())) height=(Number(THICK)) fill=(fill)
            fill-opacity=(if bar.doubt.is_some() { "0.35" } else { "0.85" })
            stroke=(colour) stroke-width="1.2" stroke-dasharray=[dash] {
            (page::hint(&format!("{}: {}", bar.label, bar.text)))
        }
    });
    let mut after = end.max(zero);
    if bar.low < bar.high {
        let (low, high) = (axis.at(bar.low), axis.at(bar.high));
        after = after.max(high);
        page.shape(html! {
            path d=(format!(
                "M{low:.1} {middle:.1}L{high:.1} {middle:.1}M{low:.1} {0:.1}L{low:.1} {1:.1}M{high:.1} {0:.1}L{high:.1} {1:.1}",
                middle - 4.0, middle + 4.0
            )) fill="none" stroke="#1a1a1a" stroke-width="1.2" {}
        });
    }
    let text = label::fit(&bar.text, TEXT, page.width - after - 8.0);
    page.write(&Text::new(&text, after + 6.0, y + 15.0));
}

/// Bars begin at 0, so their axis is never logarithmic.
fn bars_scale() -> super::super::axis::Scale {
    super::super::axis::Scale::Linear
}
