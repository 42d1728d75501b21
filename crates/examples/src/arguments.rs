use std::env;

/// The values of the options in `names`, such as `--port`, from the command line: `--port 50051` or `--port=50051`.
///
/// # Errors
///
/// A text for the user when there is an argument of another name, or an option without its value.
pub fn arguments<const N: usize>(names: [&str; N]) -> Result<[Option<String>; N], String> {
    parse(names, env::args().skip(1))
}

fn parse<const N: usize>(
    names: [&str; N],
    mut given: impl Iterator<Item = String>,
) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    while let Some(argument) = given.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let Some(index) = names.iter().position(|known| *known == name) else {
            return Err(format!("{name} is not an option of this program; it has {}", names.join(", ")));
        };
        values[index] = match value.or_else(|| given.next()) {
            Some(value) => Some(value),
            None => return Err(format!("{name} needs a value")),
        };
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<[Option<String>; 2], String> {
        parse(["--port", "--server"], line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_come_behind_a_space_or_an_equals_sign() {
        let (port, server) = (Some("1".to_owned()), Some("http://a:2".to_owned()));
        assert_eq!(parsed("--port 1 --server=http://a:2"), Ok([port.clone(), server]));
        assert_eq!(parsed("--port=1"), Ok([port, None]));
        assert_eq!(parsed(""), Ok([None, None]));
    }

    #[test]
    fn mistakes_are_explained() {
        assert_eq!(
            parsed("--prot 1"),
            Err("--prot is not an option of this program; it has --port, --server".into())
        );
        assert_eq!(parsed("--port"), Err("--port needs a value".into()));
    }
}
