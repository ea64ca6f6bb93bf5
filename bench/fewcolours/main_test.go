package main

import (
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// A picture of many colours is written again with few, none of which is far from what was there, and those that fill it stay.
func TestRewriteKeepsWhatFillsThePicture(t *testing.T) {
	picture := image.NewRGBA(image.Rect(0, 0, 300, 100))
	for y := range 100 {
		for x := range 300 {
			c := color.RGBA{255, 255, 255, 255}
			if y < 20 {
				c = color.RGBA{0, 114, 178, 255}
			} else if y < 30 { // a ramp of 256 greys
				c = color.RGBA{uint8(x), uint8(x), uint8(x), 255}
			}
			picture.SetRGBA(x, y, c)
		}
	}
	path := filepath.Join(t.TempDir(), "p.png")
	f, err := os.Create(path)
	if err == nil {
		err = png.Encode(f, picture)
	}
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if err := rewrite(path); err != nil {
		t.Fatal(err)
	}
	if f, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	colours := map[color.Color]bool{}
	for y := range 100 {
		for x := range 300 {
			c := color.RGBAModel.Convert(got.At(x, y)).(color.RGBA)
			colours[c] = true
			if d := distance(c, picture.RGBAAt(x, y)); d > 1000 || (y < 20 || y >= 30) && d != 0 {
				t.Fatalf("pixel %d,%d is %v, expected %v", x, y, c, picture.RGBAAt(x, y))
			}
		}
	}
	if len(colours) > maxColours || len(colours) < 8 {
		t.Errorf("%d colours", len(colours))
	}
}
