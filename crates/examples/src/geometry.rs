use crate::routeguide::{Point, Rectangle};

/// The mean radius of the earth, as the International Union of Geodesy and Geophysics gives it.
const EARTH_RADIUS_METRES: f64 = 6_371_009.0;

/// The length of the shortest way from `from` to `to` over the ground, by the haversine formula.
pub fn distance_metres(from: &Point, to: &Point) -> f64 {
    let (latitude_from, latitude_to) = (radians(from.latitude), radians(to.latitude));
    let half_latitude = ((latitude_to - latitude_from) / 2.0).sin();
    let half_longitude = ((radians(to.longitude) - radians(from.longitude)) / 2.0).sin();
    let chord = half_latitude.powi(2) + latitude_from.cos() * latitude_to.cos() * half_longitude.powi(2);
    2.0 * EARTH_RADIUS_METRES * chord.sqrt().min(1.0).asin()
}

/// Whether `point` lies in `rectangle`, its edges included. A corner that is not set is the point (0, 0), as everywhere in
/// proto3.
pub fn contains(rectangle: &Rectangle, point: &Point) -> bool {
    let (lo, hi) = (rectangle.lo.unwrap_or_default(), rectangle.hi.unwrap_or_default());
    let within = |a: i32, b: i32, value: i32| (a.min(b)..=a.max(b)).contains(&value);
    within(lo.latitude, hi.latitude, point.latitude) && within(lo.longitude, hi.longitude, point.longitude)
}

/// Points are in units of 10^-7 degrees.
fn radians(e7: i32) -> f64 {
    (f64::from(e7) / 1e7).to_radians()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(latitude: i32, longitude: i32) -> Point {
        Point { latitude, longitude }
    }

    #[test]
    fn distance_is_that_along_a_great_circle() {
        let origin = point(0, 0);
        assert_eq!(distance_metres(&origin, &origin), 0.0);
        // A quarter of the way round the earth, and half of it.
        let quarter = EARTH_RADIUS_METRES * std::f64::consts::FRAC_PI_2;
        assert!((distance_metres(&origin, &point(900_000_000, 0)) - quarter).abs() < 1.0);
        assert!((distance_metres(&origin, &point(0, 1_800_000_000)) - 2.0 * quarter).abs() < 1.0);
        // One degree of longitude shrinks with the cosine of the latitude.
        let at_60 = distance_metres(&point(600_000_000, 0), &point(600_000_000, 10_000_000));
        let at_0 = distance_metres(&origin, &point(0, 10_000_000));
        assert!((at_60 / at_0 - 0.5).abs() < 1e-4);
    }

    #[test]
    fn rectangle_holds_its_edges_whichever_corners_are_given() {
        for (lo, hi) in [((1, 10), (3, 30)), ((3, 30), (1, 10)), ((1, 30), (3, 10))] {
            let rectangle = Rectangle { lo: Some(point(lo.0, lo.1)), hi: Some(point(hi.0, hi.1)) };
            assert!(contains(&rectangle, &point(1, 10)) && contains(&rectangle, &point(3, 30)));
            assert!(contains(&rectangle, &point(2, 20)));
            assert!(!contains(&rectangle, &point(0, 20)) && !contains(&rectangle, &point(2, 31)));
        }
        assert!(contains(&Rectangle::default(), &Point::default()));
    }
}
