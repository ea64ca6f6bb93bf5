package document

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Micros is a duration that documents write as microseconds with at most three decimals. It is an integer of
// nanoseconds, so reading and writing are exact.
type Micros time.Duration

// D returns the duration.
func (m Micros) D() time.Duration { return time.Duration(m) }

// SLO is a latency target as a person writes it: absolute ("200ms", "165577.2us"), or a multiple of the latency of
// the whole model at batch 1 on the fastest device kind of the profile ("5x").
type SLO struct {
	Duration time.Duration // the time of an absolute target
	Factor   float64       // the factor of a target that is a multiple
}

// IsZero reports whether no target was given.
func (s SLO) IsZero() bool { return s == SLO{} }

// Duration is a duration written by a person: "30s", "200ms", "5m".
type Duration time.Duration

// D returns the duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

var (
	errNotNumber  = errors.New("not a decimal number")
	errPrecise    = errors.New("too many decimals")
	errTooLarge   = errors.New("out of range")
	errNoUnit     = errors.New("no unit")
	errBadUnit    = errors.New("unknown unit")
	errNegative   = errors.New("negative")
	errFractional = errors.New("not a whole number of bytes")
)

// ParseMicros parses a count of microseconds with at most three decimals, exactly.
func ParseMicros(text string) (Micros, error) {
	ns, err := scaleDecimal(text, 3)
	if err != nil {
		return 0, fmt.Errorf("%s is not a number of microseconds with at most three decimals: %w", Quote(text), err)
	}
	return Micros(ns), nil
}

// RoundMicros parses a count of microseconds of another tool: decimals beyond the third are rounded.
func RoundMicros(text string) (Micros, error) {
	m, err := ParseMicros(text)
	if errors.Is(err, errPrecise) {
		ns, err := roundNanos(text, time.Microsecond)
		return Micros(ns), err
	}
	return m, err
}

// RoundSeconds parses a count of seconds of another tool: decimals beyond the ninth are rounded.
func RoundSeconds(text string) (time.Duration, error) {
	d, err := ParseSeconds(text)
	if errors.Is(err, errPrecise) {
		return roundNanos(text, time.Second)
	}
	return d, err
}

// roundNanos returns a number of units as whole nanoseconds, rounded.
func roundNanos(text string, unit time.Duration) (time.Duration, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && !(math.Abs(v)*float64(unit) < math.MaxInt64) {
		err = errTooLarge
	}
	if err != nil {
		return 0, fmt.Errorf("%s is not a number: %w", Quote(text), err)
	}
	return time.Duration(math.Round(v * float64(unit))), nil
}

// ParseSeconds parses a count of seconds with at most nine decimals, exactly.
func ParseSeconds(text string) (time.Duration, error) {
	ns, err := scaleDecimal(text, 9)
	if err != nil {
		return 0, fmt.Errorf("%s is not a number of seconds with at most nine decimals: %w", Quote(text), err)
	}
	return time.Duration(ns), nil
}

// String writes the microseconds with the fewest decimals, without a unit.
func (m Micros) String() string { return string(m.append(nil)) }

// append appends the number of microseconds to b: whole ones, and up to three decimals without zeros at the end. m
// counts nanoseconds.
func (m Micros) append(b []byte) []byte {
	// Use the unsigned magnitude, because the smallest integer has no negation.
	u := uint64(m)
	if m < 0 {
		b = append(b, '-')
		u = -u
	}
	b = strconv.AppendUint(b, u/1000, 10)
	frac := u % 1000
	if frac == 0 {
		return b
	}
	b = append(b, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// scaleDecimal returns the number in text, times 10 to the power pow, exactly, such as the nanoseconds of a number of
// microseconds (pow 3). It returns errPrecise if that is not whole, and errTooLarge if it does not fit 64 bits.
// Exponents are accepted. No floating-point numbers are involved.
func scaleDecimal(text string, pow int) (int64, error) {
	s, negative := strings.CutPrefix(text, "-")
	mantissa, exponent, err := decimal(s)
	if err != nil || mantissa == 0 {
		return 0, err
	}
	exponent += pow
	if exponent < 0 {
		return 0, errPrecise
	}
	for ; exponent > 0; exponent-- {
		if mantissa > math.MaxUint64/10 {
			return 0, errTooLarge
		}
		mantissa *= 10
	}
	if negative && mantissa <= math.MaxInt64+1 {
		return int64(-mantissa), nil // also for the smallest integer, which has no positive
	}
	if mantissa > math.MaxInt64 {
		return 0, errTooLarge
	}
	return int64(mantissa), nil
}

// decimal parses a number without a sign, exactly, as mantissa * 10^exponent. The mantissa has at most 19 digits
// and does not end in zeros.
func decimal(s string) (mantissa uint64, exponent int, err error) {
	digits, point := 0, -1 // digits after leading zeros; places after the point
	zeros := 0             // zeros that are not in the mantissa yet
	i := 0

	// Read the digits. Zeros wait until another digit follows, so that trailing ones go into the exponent.
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' && point < 0 && i > 0 {
			point = 0
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		if point >= 0 {
			point++
		}
		if c == '0' {
			if mantissa != 0 {
				zeros++
			}
			continue
		}
		if digits += zeros + 1; digits > 19 {
			return 0, 0, precisionError(point)
		}
		for ; zeros > 0; zeros-- {
			mantissa *= 10
		}
		mantissa = mantissa*10 + uint64(c-'0')
	}
	if i == 0 || s[i-1] == '.' {
		return 0, 0, errNotNumber
	}

	// Read the exponent.
	if i < len(s) {
		if s[i] != 'e' && s[i] != 'E' {
			return 0, 0, errNotNumber
		}
		e, err := strconv.Atoi(s[i+1:])
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, 0, errNotNumber
		}
		exponent = min(max(e, -1000000), 1000000)
	}
	return mantissa, exponent - max(point, 0) + zeros, nil
}

// precisionError returns the error for a number with more than 19 significant digits: too precise if some of them
// are decimals, else too large.
func precisionError(point int) error {
	if point > 0 {
		return errPrecise
	}
	return errTooLarge
}

// unit is a unit of times or sizes.
type unit struct {
	name  string
	scale int64 // its nanoseconds or bytes
}

// scaleOf returns the scale of the unit of that name, or 0 if there is none.
func scaleOf(units []unit, name string) int64 {
	if u := First(units, func(u *unit) bool { return u.name == name }); u != nil {
		return u.scale
	}
	return 0
}

// timeUnits lists the units of durations, largest first.
var timeUnits = []unit{
	{"h", int64(time.Hour)}, {"m", int64(time.Minute)}, {"s", int64(time.Second)},
	{"ms", int64(time.Millisecond)}, {"us", int64(time.Microsecond)}, {"ns", 1},
}

// splitUnit splits a text such as 12.5ms behind its digits and point into the number and the unit.
func splitUnit(s string) (number, unit string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	return s[:i], s[i:]
}

// maxText bounds the text of a value with a unit. Nobody writes longer ones.
const maxText = 64

// rational parses digits with at most one point as an exact fraction.
func rational(s string) (*big.Rat, error) {
	if s == "" || len(s) > maxText || s[0] == '.' || s[len(s)-1] == '.' || strings.Count(s, ".") > 1 {
		return nil, errNotNumber
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, errNotNumber
	}
	return r, nil
}

// integer returns r as an int64. If r is not whole, it returns the error inexact.
func integer(r *big.Rat, inexact error) (int64, error) {
	if !r.IsInt() {
		return 0, inexact
	}
	if !r.Num().IsInt64() {
		return 0, errTooLarge
	}
	return r.Num().Int64(), nil
}

// parseSpan parses a duration such as 200ms, or several terms as in 1h30m, exactly.
func parseSpan(text string) (time.Duration, error) {
	remaining := strings.TrimSpace(text)
	switch {
	case remaining == "":
		return 0, errNotNumber
	case len(remaining) > maxText:
		return 0, errTooLarge
	case remaining[0] == '-':
		return 0, errNegative
	}
	total := new(big.Rat)

	// Add up the numbers with their units, as in 1m30s.
	for remaining != "" {
		number, behindNumber := splitUnit(remaining)
		r, err := rational(number)
		if err != nil {
			return 0, err
		}
		end := strings.IndexAny(behindNumber, "0123456789.")
		if end < 0 {
			end = len(behindNumber)
		}
		unit := strings.TrimSpace(behindNumber[:end])
		remaining = behindNumber[end:]
		if unit == "" {
			return 0, errNoUnit
		}
		if unit == "µs" || unit == "μs" {
			unit = "us"
		}
		ns := scaleOf(timeUnits, unit)
		if ns == 0 {
			return 0, fmt.Errorf("%w %s", errBadUnit, Quote(unit))
		}
		total.Add(total, r.Mul(r, new(big.Rat).SetInt64(ns)))
	}
	ns, err := integer(total, errPrecise)
	return time.Duration(ns), err
}

// formatSpan returns a duration as text in the largest unit, up to `largest` nanoseconds, that needs at most three
// decimals and no leading zero, so that parseSpan reads it back exactly.
func formatSpan(d time.Duration, largest int64) string {
	for _, u := range timeUnits {
		if u.scale > largest || int64(d) < u.scale {
			continue
		}
		integerPart, fraction := int64(d)/u.scale, int64(d)%u.scale
		if u.scale >= int64(time.Minute) {
			if fraction == 0 {
				return strconv.FormatInt(integerPart, 10) + u.name
			}
			continue
		}
		if fraction != 0 && fraction%max(u.scale/1000, 1) != 0 {
			continue
		}
		text := strconv.FormatInt(integerPart, 10)
		if fraction != 0 {
			text += strings.TrimRight(fmt.Sprintf(".%03d", fraction/(u.scale/1000)), "0")
		}
		return text + u.name
	}
	if d == 0 {
		return "0s"
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// ParseSLO parses a latency target: a duration such as 200ms, or a multiple of a model's own latency such as 5x.
func ParseSLO(text string) (SLO, error) {
	fail := func(err error) (SLO, error) {
		return SLO{}, fmt.Errorf("%s is not a latency target such as 200ms or 5x: %w", Quote(text), err)
	}
	t := strings.TrimSpace(text)
	if number, ok := strings.CutSuffix(t, "x"); ok {
		if strings.HasPrefix(number, "-") {
			return fail(errNegative)
		}
		if _, err := rational(strings.TrimSpace(number)); err != nil {
			return fail(err)
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		switch {
		case err != nil || v > 1e6:
			return fail(errTooLarge)
		case v < 1e-6:
			return fail(errors.New("not positive"))
		}
		return SLO{Factor: v}, nil
	}
	d, err := parseSpan(t)
	if err != nil {
		return fail(err)
	}
	if d <= 0 {
		return fail(errors.New("not positive"))
	}
	return SLO{Duration: d}, nil
}

// String returns the target as ParseSLO reads it, or "" without a target.
func (s SLO) String() string {
	switch {
	case s.IsZero():
		return ""
	case s.Factor != 0:
		return strconv.FormatFloat(s.Factor, 'f', -1, 64) + "x"
	}
	return formatSpan(s.Duration, int64(time.Second))
}

// Resolve returns the target as a duration. A target such as 5x is that multiple of base, the model's own latency,
// rounded to whole nanoseconds.
func (s SLO) Resolve(base time.Duration) time.Duration {
	if s.Factor == 0 {
		return s.Duration
	}
	return time.Duration(math.Round(s.Factor * float64(base)))
}

// ParseDuration reads "30s", "200ms", "1h30m"; it is exact and never negative.
func ParseDuration(text string) (Duration, error) {
	d, err := parseSpan(text)
	if err != nil {
		return 0, fmt.Errorf("%s is not a duration such as 30s or 200ms: %w", Quote(text), err)
	}
	return Duration(d), nil
}

// String returns the duration as ParseDuration reads it.
func (d Duration) String() string { return formatSpan(time.Duration(d), int64(time.Hour)) }
