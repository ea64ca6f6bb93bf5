package document

import (
	"io"
	"os"
	"strings"
	"testing"
)

// What is kept of standard input is bounded.
func TestStandardInputIsBounded(t *testing.T) {
	for text, want := range map[string]string{"12345678": "", "123456789": "found more than 8,"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
		w.Close()
		defer func(old *os.File) { os.Stdin = old }(os.Stdin)
		os.Stdin = r
		input := &sharedInput{maxBytes: 8}
		for range 2 {
			got, err := io.ReadAll(&sharedReader{input: input})
			if string(got) != text[:8] || (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: found %q and %v, expected %q", text, got, err, want)
			}
		}
		r.Close()
	}
}
