package jsontext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"inferplan/formats/jsontext"
)

// What AppendQuoted writes encoding/json reads, and so do String and Unescape.
func TestQuotedTextIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		want := strings.ToValidUTF8(s, "\uFFFD")
		if !utf8.ValidString(s) { // one U+FFFD for each byte
			want = string([]rune(s))
		}
		quoted := jsontext.AppendQuoted(nil, s)
		if string(jsontext.AppendQuoted(nil, []byte(s))) != string(quoted) {
			t.Fatal("bytes are quoted in another way")
		}
		var std string
		if err := json.Unmarshal(quoted, &std); err != nil || std != want {
			t.Fatalf("encoding/json reads %q, %v from %s", std, err, quoted)
		}
		end, plain, fault := jsontext.String(quoted, 0)
		if end != len(quoted) || fault != jsontext.NoFault {
			t.Fatalf("String ends at %d of %d with %d", end, len(quoted), fault)
		}
		got, _, fault := jsontext.Unescape(nil, quoted[1:end-1], true)
		if fault != jsontext.NoFault || string(got) != want || plain != (string(quoted[1:end-1]) == want) {
			t.Fatalf("Unescape reads %q with %d, plain %v", got, fault, plain)
		}
	})
}

func TestFaultsOfStringsAreLocated(t *testing.T) {
	for _, c := range []struct {
		text  string
		place int
		fault jsontext.Fault
	}{
		{`"a`, 2, jsontext.UnclosedString},
		{`"a\"`, 4, jsontext.UnclosedString},
		{`"a\`, 3, jsontext.UnclosedString},
		{"\"a\nb\"", 2, jsontext.ControlCharacter},
		{`"a\x"`, 3, jsontext.BadEscape},
		{`"\u12"`, 3, jsontext.BadHex},
		{`"\u12G4"`, 3, jsontext.BadHex},
		{`"\ud83d"`, 7, jsontext.HalfSurrogate},
		{`"\ud83d\u0041"`, 7, jsontext.HalfSurrogate},
		{`"\ud83d\u00"`, 9, jsontext.BadHex},
		{`"\ud83d\ude00"`, 0, jsontext.NoFault},
	} {
		end, _, fault := jsontext.String(c.text, 0)
		place := end
		if fault == jsontext.NoFault {
			_, place, fault = jsontext.Unescape(nil, c.text[1:end-1], true)
			if fault != jsontext.NoFault {
				place++
			}
		}
		if fault != c.fault || place != c.place {
			t.Errorf("%s: fault %d at %d, expected %d at %d", c.text, fault, place, c.fault, c.place)
		}
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "-1", "1.5e-3", "01", "1.", "-", "1e", "1e+5", ".5", "+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		end, integer, fault := jsontext.Number(s, 0)
		whole := fault == jsontext.NoFault && end == len(s)
		if trimmed := strings.TrimSpace(s); trimmed != s {
			return // encoding/json takes white space around a number
		}
		var n json.Number
		std := len(s) > 0 && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && json.Unmarshal([]byte(s), &n) == nil
		if whole != std {
			t.Fatalf("%q: a number for us %v, for encoding/json %v", s, whole, std)
		}
		if whole && integer == strings.ContainsAny(s, ".eE") {
			t.Fatalf("%q: integer %v", s, integer)
		}
	})
}

func FuzzString(f *testing.F) {
	for _, s := range []string{`"a"`, `"\u00e4\n"`, `"\ud83d\ude00"`, `"\ud83d"`, `"`, "\"\x01\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) == 0 || s[0] != '"' || !utf8.ValidString(s) {
			return
		}
		end, _, fault := jsontext.String(s, 0)
		var got []byte
		if fault == jsontext.NoFault {
			got, _, fault = jsontext.Unescape(nil, s[1:end-1], false)
		}
		var want string
		if err := json.Unmarshal([]byte(s[:end]), &want); (err == nil) != (fault == jsontext.NoFault) {
			t.Fatalf("%q: fault %d, encoding/json: %v", s, fault, err)
		} else if err == nil && string(got) != want {
			t.Fatalf("%q: %q, encoding/json %q", s, got, want)
		}
	})
}
