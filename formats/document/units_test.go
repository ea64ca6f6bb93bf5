package document

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMicrosAreExact(t *testing.T) {
	for text, want := range map[string]Micros{
		"0": 0, "-0": 0, "0.000": 0, "1": 1000, "0.001": 1, "165577.2": 165577200, "1.50": 1500, "1e3": 1000000, "1.5e-2": 15, "12E1": 120000,
		"9223372036854775.807": math.MaxInt64, "-1.5": -1500, "0.1000000000000000000000000": 100, "100000e-8": 1,
	} {
		if got, err := ParseMicros(text); err != nil || got != want {
			t.Errorf("%s is %d ns (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", ".", "1.", ".5", "1..2", "1,5", "0x10", "1e", "1e+", "e3", "NaN", "Infinity", "1 ", " 1", "+1", "1_000",
		"0.0001", "1e-4", "9223372036854775.808", "1e300", "1e99999999999999999999", "1e-99999999999999999999", "123456789012345678901234567890"} {
		if got, err := ParseMicros(text); err == nil {
			t.Errorf("%q reads as %d ns", text, got)
		}
	}
}

// A duration of whole nanoseconds survives writing and reading, with the
// fewest decimals, and the text means what big-number arithmetic says.
func TestMicrosRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Micros(rapid.Int64().Draw(t, "ns"))
		text := m.String()
		got, err := ParseMicros(text)
		if err != nil || got != m {
			t.Fatalf("%d ns writes %s and reads %d (%v)", m, text, got, err)
		}
		r, ok := new(big.Rat).SetString(text)
		if !ok || r.Mul(r, big.NewRat(1000, 1)).Cmp(new(big.Rat).SetInt64(int64(m))) != 0 {
			t.Fatalf("%d ns writes %s", m, text)
		}
		if last := text[len(text)-1]; m%1000 != 0 && last == '0' {
			t.Fatalf("%s ends in a zero that says nothing", text)
		}
		b, err := json.Marshal(m)
		var viaJSON Micros
		if err != nil || json.Unmarshal(b, &viaJSON) != nil || viaJSON != m {
			t.Fatalf("JSON %s gives %d", b, viaJSON)
		}
	})
}

func TestUnitsOfPeople(t *testing.T) {
	for text, want := range map[string]SLO{
		"200ms": {Duration: 200 * time.Millisecond}, "165577.2us": {Duration: 165577200}, "165577.2µs": {Duration: 165577200}, " 1.5 s ": {Duration: 1500 * time.Millisecond},
		"5x": {Factor: 5}, "2.5 x": {Factor: 2.5}, "1ns": {Duration: 1}, "2m": {Duration: 2 * time.Minute},
	} {
		if got, err := ParseSLO(text); err != nil || got != want {
			t.Errorf("%s is %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "200", "ms", "5X", "-5ms", "-5x", "0ms", "0x", "1e3ms", "1..2ms", "x", "5xx", "5 x ms", "0.5ns", "10000000h", "9999999x", "1,5ms"} {
		if got, err := ParseSLO(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "0s": 0, "1m0.5s": 60500 * time.Millisecond} {
		if got, err := ParseDuration(text); err != nil || got.D() != want {
			t.Errorf("%s is %v (%v), want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]Bytes{"24GiB": 24 << 30, "512MB": 512e6, "1.5KiB": 1536, "1 KB": 1000, "12": 12, "7B": 7, "0": 0} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%s is %d (%v), want %d", text, int64(got), err, int64(want))
		}
	}
	for _, text := range []string{"", "GiB", "-1", "1.5", "0.3B", "24gib", "1e9", "99999999PiB", "12 34"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q is %d", text, int64(got))
		}
	}
	for b, want := range map[Bytes]string{24 << 30: "24GiB", 512e6: "512MB", 1234567: "1234567", 1000: "1kB", 1024: "1024", 2048 << 10: "2MiB", 0: "0", 12: "12"} {
		if got := b.String(); got != want {
			t.Errorf("%d writes %s, want %s", int64(b), got, want)
		}
	}
	for s, want := range map[SLO]string{{Duration: 165577200}: "165577.2us", {Duration: 200 * time.Millisecond}: "200ms", {Duration: 1500 * time.Millisecond}: "1.5s", {Factor: 2.5}: "2.5x", {}: ""} {
		if got := s.String(); got != want {
			t.Errorf("%+v writes %q, want %q", s, got, want)
		}
	}
	for d, want := range map[Duration]string{Duration(90 * time.Minute): "90m", Duration(time.Hour): "1h", Duration(30 * time.Second): "30s", 0: "0s", 1: "1ns"} {
		if got := d.String(); got != want {
			t.Errorf("%d writes %q, want %q", d, got, want)
		}
	}
	if got := (SLO{Factor: 5}).Resolve(33115440 * time.Nanosecond); got != 165577200 {
		t.Errorf("5x of 33115.44us is %v", got)
	}
}

func TestUnitsOfPeopleRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(1, math.MaxInt64).Draw(t, "ns")
		for _, unit := range []int64{1, 1000, 1e6, 1e9, 60e9} { // round values too
			d := ns - ns%unit
			if d == 0 {
				continue
			}
			if s, err := ParseSLO(SLO{Duration: time.Duration(d)}.String()); err != nil || s.Duration != time.Duration(d) {
				t.Fatalf("%d ns writes %s and reads %+v (%v)", d, SLO{Duration: time.Duration(d)}, s, err)
			}
			if s, err := ParseDuration(Duration(d).String()); err != nil || int64(s) != d {
				t.Fatalf("%d ns writes %s and reads %d (%v)", d, Duration(d), s, err)
			}
			if b, err := ParseBytes(Bytes(d).String()); err != nil || int64(b) != d {
				t.Fatalf("%d bytes write %s and read %d (%v)", d, Bytes(d), b, err)
			}
		}
		x := rapid.Float64Range(1e-6, 1e6).Draw(t, "times")
		if s, err := ParseSLO(SLO{Factor: x}.String()); len(SLO{Factor: x}.String()) <= maxText && (err != nil || s.Factor != x) {
			t.Fatalf("%v times writes %s and reads %+v (%v)", x, SLO{Factor: x}, s, err)
		}
		b := Bytes(ns)
		data, err := json.Marshal(b)
		var again Bytes
		if err != nil || json.Unmarshal(data, &again) != nil || again != b {
			t.Fatalf("JSON %s gives %d", data, again)
		}
	})
}

func TestUnitsInsideOtherEncodings(t *testing.T) {
	type doc struct {
		SLO      SLO      `json:"slo"`
		Duration Duration `json:"duration"`
		Memory   Bytes    `json:"memory"`
		Micros   Micros   `json:"micros"`
	}
	want := doc{SLO{Factor: 5}, Duration(30 * time.Second), 24 << 30, 1500}
	j, err := json.Marshal(want)
	var got doc
	if err != nil || string(j) != `{"slo":"5x","duration":"30s","memory":"24GiB","micros":1.5}` || json.Unmarshal(j, &got) != nil || got != want {
		t.Errorf("JSON %s (%v) gives %+v", j, err, got)
	}
	for _, bad := range []string{`{"slo":200}`, `{"duration":30}`, `{"memory":"x"}`, `{"micros":"1"}`, `{"micros":0.0001}`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// Two letters that changed places are one slip, not two.
func TestNearestCountsSwappedLettersOnce(t *testing.T) {
	words := []string{"exclusive", "time", "solve", "serve"}
	for found, want := range map[string]string{"tiem": "time", "slove": "solve", "sreve": "serve", "exclusiv": "exclusive", "tim": "time", "frobnicate": "", "": ""} {
		if got := Nearest(found, words); got != want {
			t.Errorf("Nearest(%q) = %q, expected %q", found, got, want)
		}
	}
}

// Numbers of other tools that are more precise than ours are rounded; what is no number stays an error.
func TestRoundedTimes(t *testing.T) {
	for text, want := range map[string]Micros{"1.5": 1500, "0.0004999": 0, "1.2345678": 1235, "-2.00051": -2001, "1e-9": 0} {
		if got, err := RoundMicros(text); got != want || err != nil {
			t.Errorf("%s: %d, %v, expected %d", text, got, err, want)
		}
	}
	if d, err := RoundSeconds("0.12345678949"); d != 123456789 || err != nil {
		t.Errorf("%d, %v", d, err)
	}
	for _, text := range []string{"x", "", "1e300", "9e18.1", "NaN"} {
		if _, err := RoundMicros(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]float64{"0.8": .8, "80%": .8, "80 %": .8, "1e1%": .1, "5E-1 %": .005, "1e-1": .1} {
		if got, err := ParseShare(text); err != nil || got != want {
			t.Errorf("%s: found %v and %v, expected %v", text, got, err, want)
		}
	}
}

func TestShortDurationHasThreeDigits(t *testing.T) {
	for _, test := range []struct {
		duration time.Duration
		expected string
	}{
		{0, "0s"}, {7, "7ns"}, {1234, "1.23µs"}, {64882520, "64.9ms"}, {999999999, "1s"}, {12590279000, "12.6s"}, {-1500 * time.Microsecond, "-1.5ms"},
		{time.Hour + 23*time.Minute + 45*time.Second, "1h23m50s"},
	} {
		if text := ShortDuration(test.duration); text != test.expected {
			t.Errorf("%d ns: %s, expected %s", int64(test.duration), text, test.expected)
		}
	}
}
