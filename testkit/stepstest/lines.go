package stepstest

import (
	"encoding/binary"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"inferplan/engine/models"
)

// Line draws a line of text in black on light grey, at a place of an image: rows
// of red, green and blue. Turned, the image stands on its head.
func Line(text string, w, h, x, y int, size float64, turned bool) ([]byte, error) {
	return Page([]string{text}, w, h, x, y, 0, size, turned)
}

// Page draws lines of text, the first at a place, the others so far below it each.
func Page(lines []string, w, h, x, y, below int, size float64, turned bool) ([]byte, error) {
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("drawing lines: %w", err)
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone})
	if err != nil {
		return nil, fmt.Errorf("drawing lines: %w", err)
	}
	defer face.Close()
	grey := image.NewGray(image.Rect(0, 0, w, h))
	for i := range grey.Pix {
		grey.Pix[i] = 235
	}
	for i, text := range lines {
		d := font.Drawer{Dst: grey, Src: image.Black, Face: face, Dot: fixed.P(x, y+i*below)}
		d.DrawString(text)
	}
	out := make([]byte, 3*w*h)
	for i, v := range grey.Pix {
		at := i
		if turned {
			at = w*h - 1 - i
		}
		out[3*at], out[3*at+1], out[3*at+2] = v, v, v
	}
	return out, nil
}

// Keys are the characters of the recogniser's codes.
func Keys() ([]string, error) {
	dir, err := models.Dir()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "ppocr_keys_v1.txt"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", models.ErrAbsent, err)
	}
	return append(strings.Split(strings.TrimRight(string(data), "\n"), "\n"), " "), nil
}

// Spell is the text of codes: int32, 0 behind the last.
func Spell(keys []string, codes []byte) string {
	var out strings.Builder
	for i := 0; i+4 <= len(codes); i += 4 {
		if c := int(binary.LittleEndian.Uint32(codes[i:])); c > 0 && c <= len(keys) {
			out.WriteString(keys[c-1])
		}
	}
	return out.String()
}
