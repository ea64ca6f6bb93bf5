package main

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"slices"
)

// maxColours is the number of colours that a picture keeps. Half a byte would hold 16, in which text looks torn.
const maxColours = 32

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: fewcolours FILE.png...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		if err := rewrite(path); err != nil {
			fmt.Fprintf(os.Stderr, "fewcolours: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// rewrite writes a picture again with few colours.
func rewrite(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	picture, err := png.Decode(in)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(out, withFewColours(picture)); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// withFewColours returns a picture in its most frequent colours. Each pixel of another colour gets the nearest of them.
func withFewColours(picture image.Image) *image.Paletted {
	// Count the colours, and take the most frequent ones that are not alike.
	bounds := picture.Bounds()
	counts := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(-cmp.Compare(counts[a], counts[b]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range frequent {
		if len(palette) < maxColours && (len(palette) == 0 || distance(c, palette[palette.Index(c)].(color.RGBA)) >= 300) {
			palette = append(palette, c)
		}
	}

	// Draw the picture in them.
	out := image.NewPaletted(bounds, palette)
	nearest := map[color.RGBA]uint8{}
	for c := range counts {
		nearest[c] = uint8(palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			out.SetColorIndex(x, y, nearest[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)])
		}
	}
	return out
}

// distance returns the square of the distance of two colours.
func distance(a, b color.RGBA) int {
	square := func(x, y uint8) int { d := int(x) - int(y); return d * d }
	return square(a.R, b.R) + square(a.G, b.G) + square(a.B, b.B)
}
