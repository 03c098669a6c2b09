//! The histogram as a picture. Pure.

use super::histogram::Histogram;

const WIDTH: usize = 720;
const ROW: usize = 22;
/// Where the bars begin, and how long the longest one is.
const LEFT: usize = 200;
const LONGEST: usize = 420;
/// The room for the title.
const TOP: usize = 48;

pub(super) fn draw(histogram: &Histogram, title: &str) -> String {
    let buckets: Vec<_> = histogram.buckets().collect();
    let most = buckets
        .iter()
        .map(|bucket| bucket.2)
        .max()
        .unwrap_or(0)
        .max(1);
    let height = TOP + ROW * buckets.len() + 16;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"16\" fill=\"#222222\">{}</text>\n",
        escaped(title)
    );
    for (index, (from, to, count)) in buckets.into_iter().enumerate() {
        let y = TOP + ROW * index;
        let (text, length) = (y + 15, (count * LONGEST as u64).div_ceil(most));
        let length = usize::try_from(length).unwrap_or(LONGEST);
        let (label, end) = (LEFT - 10, LEFT + length + 8);
        svg += &format!(
            "<text x=\"{label}\" y=\"{text}\" text-anchor=\"end\" fill=\"#222222\">\
             {from:.1?} – {to:.1?}</text>\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{length}\" height=\"18\" fill=\"#3b6ea5\"/>\
             <text x=\"{end}\" y=\"{text}\" fill=\"#666666\">{count}</text>\n"
        );
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::histogram::Times;
    use std::time::Duration;

    #[test]
    fn a_picture_has_a_bar_for_each_bucket_and_no_markup_of_others() {
        let mut times = Times::default();
        for time in [10, 11, 500] {
            times.add(Duration::from_micros(time));
        }
        let histogram = Histogram::of(&times);
        let svg = draw(&histogram, "a <b> & c");
        let bars = svg.matches("<rect").count() - 1;
        assert_eq!(bars, histogram.buckets().count());
        assert!(svg.contains("a &lt;b&gt; &amp; c"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
