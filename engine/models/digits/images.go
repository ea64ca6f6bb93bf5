package digits

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Side of an image and the number of its pixels.
const (
	Side   = 28
	Pixels = Side * Side
)

// ErrAbsent is returned when the images have not been fetched.
var ErrAbsent = errors.New("images of digits are not set up: type `make setup`")

// Image is a labelled image, row by row, 0 is background.
type Image struct {
	Pixels []float32
	Label  int
}

// Data holds the images to train on and the samples that are kept apart.
type Data struct {
	Train, Samples []Image
}

// Load reads the images of a folder, one file per digit. The images of a digit go alternately to Train and to
// Samples. Both are ordered by position in the files, and by digit within a position.
func Load(dir string) (*Data, error) {
	var byDigit [10][][]float32
	maxPerDigit := 0

	// Read a file for each digit.
	for digit := range byDigit {
		path := filepath.Join(dir, strconv.Itoa(digit)+".json")
		raw, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", path, ErrAbsent)
		}
		if err != nil {
			return nil, fmt.Errorf("reading digits: %w", err)
		}
		var file struct {
			Data []float32 `json:"data"`
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			return nil, fmt.Errorf("reading digits: %s: %w", path, err)
		}
		if len(file.Data) == 0 || len(file.Data)%Pixels != 0 {
			return nil, fmt.Errorf("reading digits: %s: %d numbers, expected a multiple of %d", path, len(file.Data), Pixels)
		}
		for v := file.Data; len(v) > 0; v = v[Pixels:] {
			byDigit[digit] = append(byDigit[digit], v[:Pixels:Pixels])
		}
		maxPerDigit = max(maxPerDigit, len(byDigit[digit]))
	}

	// Take the digits in turns: even images are for training, odd ones are samples.
	d := &Data{}
	for i := range maxPerDigit {
		for digit := range byDigit {
			if i >= len(byDigit[digit]) {
				continue
			}
			img := Image{byDigit[digit][i], digit}
			if i%2 == 0 {
				d.Train = append(d.Train, img)
			} else {
				d.Samples = append(d.Samples, img)
			}
		}
	}
	return d, nil
}
