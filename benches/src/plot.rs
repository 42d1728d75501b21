//! Pictures of what `grid` prints: the time of a call against the number of callers, its latencies, and ratios to the floor.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

/// One line of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What the cell's name says besides peer and callers: cells with the same are in one picture.
    pub group: String,
    /// The peer, and whether it is traced.
    pub series: String,
    /// Callers at once.
    pub callers: usize,
    /// Time a call.
    pub ns: f64,
    /// Latencies in nanoseconds: p50, p99, p99.9.
    pub latency_ns: [f64; 3],
}

/// Reads the lines of a table; others, such as those about the machine, are passed over. `by_cpu` takes the processor time of a call for
/// its time, which is the same on one core that nobody else uses.
pub fn read(text: &str, by_cpu: bool) -> Vec<Point> {
    text.lines().filter_map(|line| point(line, by_cpu)).collect()
}

fn point(line: &str, by_cpu: bool) -> Option<Point> {
    let (name, rest) = line.split_once(char::is_whitespace)?;
    let name = name.strip_prefix("BenchmarkClient")?;
    let (mut group, mut series, mut callers) = (Vec::new(), String::new(), 0);
    for part in name.split('/') {
        match part.split_once('=') {
            Some(("peer", peer)) => series = peer.to_owned(),
            Some(("trace", trace)) => series.push_str(&format!(", trace {trace}")),
            Some(("c", count)) => callers = count.parse().ok()?,
            Some((key, value)) => group.push(format!("{key} {value}")),
            None => group.push(part.to_lowercase()),
        }
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    let value = |unit: &str| words.windows(2).find(|pair| pair[1] == unit)?.first()?.parse::<f64>().ok();
    Some(Point {
        group: group.join(", "),
        series,
        callers,
        ns: value(if by_cpu { "cpu-ns/op" } else { "ns/op" })?,
        latency_ns: [value("p50-ns")?, value("p99-ns")?, value("p99.9-ns")?],
    })
}

/// The pictures of one table.
struct Album {
    folder: PathBuf,
    drawn: Vec<PathBuf>,
}

/// One picture: series by name, each a list of x and y.
struct Picture<'p> {
    name: String,
    title: String,
    y_title: &'p str,
    series: Series,
}

type Series = BTreeMap<String, Vec<(f64, f64)>>;

/// Draws everything that there is to draw of `points` into `folder`, and returns the files.
///
/// # Errors
/// A folder or a file cannot be written.
pub fn draw(points: &[Point], folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let mut album = Album { folder: folder.to_owned(), drawn: Vec::new() };
    let groups: BTreeSet<&str> = points.iter().map(|point| &*point.group).collect();
    for group in groups {
        let points: Vec<&Point> = points.iter().filter(|point| point.group == group).collect();
        album.draw_group(group, &points)?;
    }
    Ok(album.drawn)
}

impl Album {
    fn draw_group(&mut self, group: &str, points: &[&Point]) -> Result<(), Box<dyn Error>> {
        let file = |what: &str| format!("{}-{what}", group.replace(", ", "-").replace([' ', '/'], "-"));
        self.draw(Picture {
            name: file("time"),
            title: format!("Time a call: {group}"),
            y_title: "µs a call",
            series: series(points, |point| Some((point.series.clone(), point.ns / 1e3))),
        })?;
        let floor: BTreeMap<usize, f64> = points
            .iter()
            .filter(|point| point.series == "floor")
            .map(|point| (point.callers, point.ns))
            .collect();
        self.draw(Picture {
            name: file("ratio"),
            title: format!("Time a call, in times the floor: {group}"),
            y_title: "times the floor",
            series: series(points, |point| {
                let floor = floor.get(&point.callers)?;
                Some((point.series.clone(), point.ns / floor))
            }),
        })?;
        let names = ["p50", "p99", "p99.9"];
        let mut latencies = Series::new();
        for (index, name) in names.into_iter().enumerate() {
            latencies.extend(series(points, |point| {
                (point.series != "floor")
                    .then(|| (format!("{} {name}", point.series), point.latency_ns[index] / 1e3))
            }));
        }
        self.draw(Picture {
            name: file("latency"),
            title: format!("Latency of a call: {group}"),
            y_title: "µs",
            series: latencies,
        })
    }

    fn draw(&mut self, picture: Picture<'_>) -> Result<(), Box<dyn Error>> {
        if picture.series.values().all(Vec::is_empty) {
            return Ok(());
        }
        let path = self.folder.join(format!("{}.svg", picture.name));
        picture.draw(&path)?;
        self.drawn.push(path);
        Ok(())
    }
}

fn series(points: &[&Point], y: impl Fn(&Point) -> Option<(String, f64)>) -> Series {
    let mut series = Series::new();
    for point in points {
        if let Some((name, y)) = y(point) {
            series.entry(name).or_default().push((point.callers as f64, y));
        }
    }
    for points in series.values_mut() {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    series
}

/// How large pictures are, in pixels.
const SIZE: (u32, u32) = (800, 500);

impl Picture<'_> {
    fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let all = || self.series.values().flatten().copied();
        let range = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) =
                values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
            // Room around a single value, too.
            low / 1.3..high * 1.3
        };
        let (x, y) = (range(&mut all().map(|point| point.0)), range(&mut all().map(|point| point.1)));
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x.log_scale(), y.log_scale())?;
        chart
            .configure_mesh()
            .x_desc("callers at once")
            .y_desc(self.y_title)
            .x_label_formatter(&short)
            .y_label_formatter(&short)
            .light_line_style(WHITE)
            .draw()?;
        for (index, (name, points)) in self.series.iter().enumerate() {
            let style = Palette99::pick(index).stroke_width(2);
            let dot = Palette99::pick(index).filled();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, dot)))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

/// A number without digits that say nothing.
fn short(value: &f64) -> String {
    if *value >= 10.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "goos: linux\n\
        BenchmarkClientUnary/peer=fulmar/client=async/threads=one/payload=1/transport=tcp/c=1 10 2000.0 ns/op 0.0 B/op 0.00 allocs/op 1000 p50-ns 3000 p99-ns 4000 p99.9-ns 2000.0 cpu-ns/op\n\
        BenchmarkClientUnary/peer=fulmar/client=async/threads=one/payload=1/transport=tcp/trace=on/c=64 10 500.0 ns/op 0.0 B/op 0.00 allocs/op 1000 p50-ns 3000 p99-ns 4000 p99.9-ns 2000.0 cpu-ns/op\n\
        BenchmarkClientUnary/peer=floor/client=async/threads=one/payload=1/transport=tcp/c=1 10 1000.0 ns/op 0.0 B/op 0.00 allocs/op 1 p50-ns 2 p99-ns 3 p99.9-ns 1.0 cpu-ns/op\n\
        # ClientUnary: fulmar's ns/op is 2.000 x floor\n";

    #[test]
    fn the_lines_of_a_table_are_read_and_others_passed_over() {
        let points = read(TABLE, false);
        assert_eq!(read(TABLE, true)[2].ns, 1.0);
        assert_eq!(points.len(), 3);
        assert_eq!(points[0].group, "unary, client async, threads one, payload 1, transport tcp");
        assert_eq!((&*points[0].series, points[0].callers, points[0].ns), ("fulmar", 1, 2000.0));
        assert_eq!(points[0].latency_ns, [1000.0, 3000.0, 4000.0]);
        assert_eq!((&*points[1].series, points[1].callers), ("fulmar, trace on", 64));
    }

    #[test]
    fn a_table_makes_three_pictures_a_group() {
        let folder = std::env::temp_dir().join(format!("fulmar-plot-{}", std::process::id()));
        let drawn = draw(&read(TABLE, false), &folder).expect("the folder for temporary files takes files");
        let pictures: Vec<_> =
            drawn.iter().map(|path| fs::read_to_string(path).expect("it is there")).collect();
        fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!(pictures.len(), 3);
        for picture in &pictures {
            assert!(picture.starts_with("<svg") && picture.contains("fulmar"), "{picture}");
        }
        assert!(pictures[0].contains("µs a call"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.3, 1.0, 64.0, 512.4].map(|value| short(&value)), ["0.3", "1", "64", "512"]);
    }
}
