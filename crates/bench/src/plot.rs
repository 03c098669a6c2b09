//! Plots as SVG, written by hand: lines and bars are all that is needed, and the crates that draw them
//! bring fonts and rasters along. The colours are in the middle of the scale and the ground is
//! transparent, so that a plot can be read on a light page and on a dark one.

use std::fmt::Write as _;

/// One colour for each line or bar, told apart also by those who see no red.
const COLOURS: [&str; 6] = [
    "#2f81f7", "#d9730d", "#8b949e", "#2da44e", "#a371f7", "#d4a72c",
];
const STYLE: &str = "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#57606a}\
    .title{font-size:13px;font-weight:600}\
    .grid{stroke:#8b949e;stroke-opacity:.3}\
    @media(prefers-color-scheme:dark){text{fill:#9aa4af}}";

const PANEL_WIDTH: f64 = 400.0;
const PANEL_HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const LEGEND: f64 = 26.0;

/// A line: its name, and a figure for each place on the x-axis.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) figures: Vec<f64>,
}

/// Lines over the same places, beside each other or alone. All panels have the same lines.
pub(crate) struct Panel {
    pub(crate) title: String,
    /// What the places mean, and the places.
    pub(crate) x: (&'static str, Vec<String>),
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// How figures are spread over the height.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    Logarithmic,
}

/// The ticks of an axis, from its end to its other end.
fn ticks(scale: Scale, least: f64, most: f64) -> Vec<f64> {
    match scale {
        Scale::Linear => {
            let rough = most.max(f64::MIN_POSITIVE) / 5.0;
            let power = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
            let step = step.into_iter().find(|step| *step >= rough);
            let step = step.unwrap_or(10.0 * power);
            let count = (most / step).ceil() as usize;
            (0..=count).map(|tick| tick as f64 * step).collect()
        }
        Scale::Logarithmic => {
            let (mut ticks, mut decade) = (Vec::new(), 10f64.powf(least.log10().floor()));
            while decade <= most * 10.0 {
                ticks.extend([1.0, 2.0, 5.0].map(|times| times * decade));
                decade *= 10.0;
            }
            let first = ticks.iter().rposition(|tick| *tick <= least).unwrap_or(0);
            let last = ticks.iter().position(|tick| *tick >= most);
            ticks[first..=last.unwrap_or(ticks.len() - 1)].to_vec()
        }
    }
}

fn label(tick: f64) -> String {
    match tick {
        tick if tick >= 10_000.0 => format!("{}k", tick / 1000.0),
        tick => format!("{}", (tick * 1000.0).round() / 1000.0),
    }
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Panels beside each other.
pub(crate) fn lines(scale: Scale, panels: &[Panel]) -> String {
    let (width, height) = (PANEL_WIDTH * panels.len() as f64, PANEL_HEIGHT + LEGEND);
    let mut svg = begin(width, height);
    for (at, panel) in panels.iter().enumerate() {
        panel_of_lines(&mut svg, PANEL_WIDTH * at as f64, scale, panel);
    }
    let names = panels.first().map_or(&[][..], |panel| &panel.lines);
    let mut x = 16.0;
    for (line, colour) in names.iter().zip(COLOURS) {
        let y = PANEL_HEIGHT + LEGEND / 2.0;
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            r#"<line x1="{x}" y1="{y}" x2="{}" y2="{y}" stroke="{colour}" stroke-width="2.5"/>"#,
            x + 20.0
        );
        text(&mut svg, x + 26.0, y + 4.0, "start", "", line.name);
        x += 40.0 + 6.5 * line.name.len() as f64;
    }
    svg + "</svg>\n"
}

fn begin(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<style>{STYLE}</style>\n"
    )
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{words}</text>"#
    );
}

fn panel_of_lines(svg: &mut String, left: f64, scale: Scale, panel: &Panel) {
    let figures = || {
        panel
            .lines
            .iter()
            .flat_map(|line| line.figures.iter().copied())
    };
    let (least, most) = figures()
        .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), figure| {
            (least.min(figure), most.max(figure))
        });
    let ticks = ticks(scale, least, most);
    let bend = |figure: f64| match scale {
        Scale::Linear => figure,
        Scale::Logarithmic => figure.ln(),
    };
    let (low, high) = (bend(ticks[0]), bend(ticks[ticks.len() - 1]));
    let (bottom, inner) = (PANEL_HEIGHT - BOTTOM, PANEL_HEIGHT - TOP - BOTTOM);
    let y = |figure: f64| bottom - (bend(figure) - low) / (high - low) * inner;
    let (from, to) = (left + LEFT, left + PANEL_WIDTH - RIGHT);
    let places = &panel.x.1;
    let step = (to - from) / places.len() as f64;
    let x = |at: usize| from + step * (at as f64 + 0.5);
    text(svg, from, TOP - 16.0, "start", "title", &panel.title);
    for tick in ticks {
        let height = y(tick);
        let _ = writeln!(
            svg,
            r#"<line x1="{from:.1}" y1="{height:.1}" x2="{to:.1}" y2="{height:.1}" class="grid"/>"#
        );
        text(svg, from - 6.0, height + 4.0, "end", "", &label(tick));
    }
    for (at, place) in places.iter().enumerate() {
        text(svg, x(at), bottom + 16.0, "middle", "", place);
    }
    let middle = (from + to) / 2.0;
    text(svg, middle, bottom + 34.0, "middle", "", panel.x.0);
    let (turn_x, turn_y) = (left + 14.0, TOP + inner / 2.0);
    let _ = writeln!(
        svg,
        r#"<text transform="translate({turn_x:.1} {turn_y:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        escape(panel.y)
    );
    for (line, colour) in panel.lines.iter().zip(COLOURS) {
        let points = line.figures.iter().enumerate();
        let points: Vec<_> = points.map(|(at, figure)| (x(at), y(*figure))).collect();
        let path: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2.5"/>"#,
            path.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#
            );
        }
    }
}

/// Bars of one measure: a title that says which end is better, and a figure for each name.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) bars: Vec<(String, f64)>,
}

/// Groups of horizontal bars beside each other; the first bar of each is ours. Below them a note.
pub(crate) fn bars(groups: &[Bars], note: &str) -> String {
    const NAMES: f64 = 175.0;
    const ROW: f64 = 22.0;
    const FIGURE: f64 = 56.0;
    const GAP: f64 = 24.0;
    let rows = groups
        .iter()
        .map(|group| group.bars.len())
        .max()
        .unwrap_or(0);
    let (width, height) = (
        PANEL_WIDTH * groups.len() as f64,
        TOP + ROW * rows as f64 + 10.0 + LEGEND,
    );
    let mut svg = begin(width, height);
    for (at, group) in groups.iter().enumerate() {
        let left = PANEL_WIDTH * at as f64;
        let room = PANEL_WIDTH - NAMES - FIGURE - GAP;
        let most = group.bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
        text(&mut svg, left + NAMES, 18.0, "start", "title", &group.title);
        for (row, (name, figure)) in group.bars.iter().enumerate() {
            let y = TOP + ROW * row as f64;
            let length = (figure / most.max(f64::MIN_POSITIVE) * room).max(1.0);
            let colour = if row == 0 { COLOURS[0] } else { COLOURS[2] };
            text(&mut svg, left + NAMES - 8.0, y + 14.0, "end", "", name);
            let _ = writeln!(
                svg,
                r#"<rect x="{:.1}" y="{:.1}" width="{length:.1}" height="16" rx="2" fill="{colour}"/>"#,
                left + NAMES,
                y + 2.0
            );
            let (x, shown) = (left + NAMES + length + 6.0, thousands(*figure));
            text(&mut svg, x, y + 14.0, "start", "", &shown);
        }
    }
    text(&mut svg, 16.0, height - 12.0, "start", "", note);
    svg + "</svg>\n"
}

fn thousands(figure: f64) -> String {
    match figure {
        figure if figure >= 100_000.0 => format!("{:.0}k", figure / 1000.0),
        figure if figure >= 10.0 => format!("{figure:.0}"),
        figure => format!("{figure:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_from_below_the_least_to_above_the_most() {
        assert_eq!(
            ticks(Scale::Linear, 1.0, 4.4),
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        );
        assert_eq!(
            ticks(Scale::Logarithmic, 60.0, 900.0),
            [50.0, 100.0, 200.0, 500.0, 1000.0]
        );
        assert_eq!(ticks(Scale::Logarithmic, 100.0, 100.0), [100.0]);
    }

    #[test]
    fn bars_are_named_with_their_versions_and_say_what_was_measured() {
        let group = Bars {
            title: "cycles/s".to_owned(),
            bars: vec![
                ("fencepost".to_owned(), 2.0),
                ("rslock 0.10.0".to_owned(), 1.0),
            ],
        };
        let svg = bars(&[group], "fencepost 0.1.0, revision abc1234");
        for text in [
            ">rslock 0.10.0</text>",
            ">fencepost 0.1.0, revision abc1234</text>",
        ] {
            assert!(svg.contains(text), "{svg}");
        }
    }

    #[test]
    fn a_plot_names_what_it_shows_and_escapes_it() {
        let panel = Panel {
            title: "n < 9".to_owned(),
            x: ("tasks", vec!["1".to_owned(), "2".to_owned()]),
            y: "us",
            lines: vec![Line {
                name: "fencepost",
                figures: vec![10.0, 20.0],
            }],
        };
        let svg = lines(Scale::Linear, &[panel]);
        assert!(svg.contains("n &lt; 9") && svg.contains(">fencepost</text>"));
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
