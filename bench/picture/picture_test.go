package picture_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"inferplan/bench/picture"
)

// A picture is a whole XML document, whatever its texts hold.
func TestPicture(t *testing.T) {
	p := picture.New(100, 50, 12)
	p.Text(1, 2, `text-anchor="end"`, `a < b & "c"`)
	p.Curve(picture.Colours[0], 1.5, [][2]float64{{0, 0}, {10.04, 20}})
	p.Addf(`<circle r="%d"/>`, 3)
	text := p.String()
	for _, want := range []string{`width="100" height="50"`, `a &lt; b &amp;`, `<polyline points="0.0,0.0 10.0,20.0"`, `<circle r="3"/>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
