package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// A document's text read as documents are, and by libraries: tokens that tell their place, and values that do not.
// docs/dependencies.md has the figures.
func BenchmarkText(b *testing.B) {
	data := largeText()
	text := string(data)
	type way struct {
		name string
		read func() error
	}
	ways := []way{
		{"checked", func() error { _, err := scanJSON(&source{file: "profile.json", text: text}); return orNil(err) }},
		{"standard-tokens", func() error { return tokens(text) }},
		{"standard-values", func() error { var v any; return json.Unmarshal(data, &v) }},
		{"coming-tokens", func() error { return comingTokens(text) }},
	}
	if goccyJSON != nil {
		ways = append(ways, way{"goccy-values", func() error { var v any; return goccyJSON(data, &v) }})
	}
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := way.read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// goccyJSON is goccy/go-json's Unmarshal. It is nil without the build tag rivals.
var goccyJSON func(data []byte, v any) error

// largeText is as large as a profile of many models gets: about 12 MB.
func largeText() []byte {
	text := []byte(`{"format":"inferplan.profile/v1","models":[`)
	for i := range 150_000 {
		text = fmt.Appendf(text, "\n  {\"wall_us\": %d.%03d, \"p99_us\": %d.5, \"samples\": %d, \"name\": \"block%d\"},", 1000+i%9000, i%1000, 2000+i, 10+i%90, i)
	}
	return append(text, "{}]}"...)
}

// orNil is an error that is nil where there is none.
func orNil(err *Error) error {
	if err == nil {
		return nil
	}
	return err
}

// comingTokens reads a text with the reader of tokens that the standard library is to have, and asks each for its place.
func comingTokens(text string) error {
	d := jsontext.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		_ = d.InputOffset()
	}
}

// tokens reads a text with the standard library's reader of tokens, and asks each for its place.
func tokens(text string) error {
	d := json.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		_ = d.InputOffset()
	}
}
