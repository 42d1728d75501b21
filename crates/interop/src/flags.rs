//! Command lines as the official programs take them: `--name=value` or `--name value`, switches as `--name` or `--name=true`.

use std::ffi::OsString;
use std::str::FromStr;

/// Goes through the flags of a command line, one call of `take` for each. `take` asks the [`Flag`] for its value; false means that the
/// program has no flag of that name.
///
/// # Errors
/// A text for the user: a flag without its value or with a wrong one, an unknown flag, or an argument that is no flag.
pub fn parse(
    given: impl IntoIterator<Item = OsString>,
    mut take: impl FnMut(&str, &mut Flag<'_>) -> Result<bool, String>,
) -> Result<(), String> {
    let mut parser = lexopt::Parser::from_args(given);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        let lexopt::Arg::Long(name) = argument else {
            return Err(format!("{}: flags begin with two dashes", argument.unexpected()));
        };
        let name = name.to_owned();
        if !take(&name, &mut Flag { name: &name, parser: &mut parser })? {
            return Err(format!("this program has no flag --{name}; --help lists those that it has"));
        }
    }
    Ok(())
}

/// One flag of the command line, whose value is still to be read.
#[derive(Debug)]
pub struct Flag<'p> {
    name: &'p str,
    parser: &'p mut lexopt::Parser,
}

impl Flag<'_> {
    /// A text.
    ///
    /// # Errors
    /// There is none, or it is not Unicode.
    pub fn text(&mut self) -> Result<String, String> {
        let value = self.parser.value().map_err(|error| error.to_string())?;
        value.into_string().map_err(|_| format!("--{}: the value is not Unicode", self.name))
    }

    /// A number.
    ///
    /// # Errors
    /// There is none, or it is not one of this kind.
    pub fn number<T: FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T, String> {
        let text = self.text()?;
        text.parse().map_err(|error| format!("--{}={text}: {error}", self.name))
    }

    /// A switch: on without a value.
    ///
    /// # Errors
    /// The value behind `=` is neither `true` nor `false`.
    pub fn switch(&mut self) -> Result<bool, String> {
        match self.parser.optional_value() {
            None => Ok(true),
            Some(value) if value == "true" || value == "1" => Ok(true),
            Some(value) if value == "false" || value == "0" => Ok(false),
            Some(value) => Err(format!("--{}={}: true or false", self.name, value.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(u16, bool, String), String> {
        let (mut port, mut tls, mut case) = (0, false, String::new());
        parse(line.split_whitespace().map(OsString::from), |name, flag| {
            match name {
                "port" => port = flag.number()?,
                "use_tls" => tls = flag.switch()?,
                "test_case" => case = flag.text()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok((port, tls, case))
    }

    #[test]
    fn values_come_behind_an_equals_sign_or_a_space_and_switches_may_have_one() {
        let all = (7, true, "large_unary".to_owned());
        assert_eq!(parsed("--port=7 --use_tls=true --test_case=large_unary").as_ref(), Ok(&all));
        assert_eq!(parsed("--use_tls --port 7 --test_case large_unary"), Ok(all));
        assert_eq!(parsed("--use_tls=false --test_case="), Ok((0, false, String::new())));
    }

    #[test]
    fn mistakes_are_explained() {
        for (line, reason) in [
            ("--prot=1", "no flag --prot"),
            ("--port", "port"),
            ("--port=x", "--port=x: invalid digit"),
            ("--port=65536", "too large"),
            ("--use_tls=maybe", "true or false"),
            ("-p 1", "two dashes"),
            ("large_unary", "two dashes"),
        ] {
            let text = parsed(line).expect_err(line);
            assert!(text.contains(reason), "{line}: {text}");
        }
    }
}
