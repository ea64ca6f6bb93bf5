package document

import "testing"

// What begins like a text may be cut inside a character.
func TestBeginsText(t *testing.T) {
	for _, c := range []struct {
		head string
		want bool
	}{
		{"", true}, {"{}", true}, {"ä", true}, {"\xc3", true}, {"a\xe2\x82", true}, {"a\x00", false}, {"\xc3(abc", false}, {"\x80\x80\x80\x80", false},
	} {
		if got := beginsText([]byte(c.head)); got != c.want {
			t.Errorf("%q begins a text: %v, want %v", c.head, got, c.want)
		}
	}
}
