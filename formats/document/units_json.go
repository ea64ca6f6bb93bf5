package document

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// These methods let encoding/json read and write the units outside of Decode and Marshal: in command output and
// tests.

// MarshalJSON writes the microseconds as a number.
func (m Micros) MarshalJSON() ([]byte, error) { return m.append(nil), nil }

// UnmarshalJSON reads a number of microseconds.
func (m *Micros) UnmarshalJSON(b []byte) (err error) {
	*m, err = ParseMicros(string(b))
	return err
}

// MarshalText writes the target as text.
func (s SLO) MarshalText() ([]byte, error) {
	if s.IsZero() {
		return nil, fmt.Errorf("a latency target is missing")
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads the target from text.
func (s *SLO) UnmarshalText(b []byte) (err error) {
	*s, err = ParseSLO(string(b))
	return err
}

// MarshalText writes the duration as text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the duration from text.
func (d *Duration) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDuration(string(b))
	return err
}

// MarshalJSON writes a number if no unit makes it shorter, and otherwise text.
func (b Bytes) MarshalJSON() ([]byte, error) {
	t := memoryText(b)
	if _, err := strconv.ParseInt(t, 10, 64); err == nil {
		return []byte(t), nil
	}
	return strconv.AppendQuote(nil, t), nil
}

// UnmarshalJSON reads a number or text.
func (b *Bytes) UnmarshalJSON(data []byte) (err error) {
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	*b, err = ParseMemory(text)
	return err
}
