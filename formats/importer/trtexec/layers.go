package trtexec

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// Layers is the time of every layer of an engine.
type Layers struct {
	Count  int // iterations
	Layers []Layer
}

// Layer is one layer, in the order in which the engine runs them.
type Layer struct {
	Name string
	Time time.Duration // of one iteration: the median where the file has it, else the mean
}

// Total is the time of all layers in one iteration.
func (l *Layers) Total() time.Duration {
	sum := time.Duration(0)
	for i := range l.Layers {
		sum += l.Layers[i].Time
	}
	return sum
}

// MaxLayers bounds an engine.
const MaxLayers = 5000

var layerFields = []string{"count", "name", "timeMs", "averageMs", "medianMs", "percentage"}

// ReadLayers reads what --exportProfile wrote; name is what errors call it.
func ReadLayers(r io.Reader, name string) (*Layers, error) {
	const what = "a list of layers, as trtexec --exportProfile writes it"
	list, err := readEntries(r, name, what, layerFields)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, (&file{name: name}).fail(0, "", "an empty list", what, "")
	}
	head := &list[0]
	count := head.numbers["count"]
	if len(head.names) != 1 || !(count >= 1 && count <= math.MaxInt32) || count != math.Trunc(count) {
		return nil, head.fail("", "no object with a count of iterations alone", `{"count": N} before the layers`, "")
	}
	if n := len(list) - 1; n < 1 || n > MaxLayers {
		return nil, head.fail("", fmt.Sprintf("%d layers behind the count", n), fmt.Sprintf("1 to %d", MaxLayers), "")
	}
	l := &Layers{Count: int(count)}
	for i := range list[1:] {
		layer, err := list[1+i].layer(count)
		if err != nil {
			return nil, err
		}
		l.Layers = append(l.Layers, layer)
	}
	if l.Total() == 0 {
		return nil, head.fail("", "no layer that takes time", "at least one", "")
	}
	return l, nil
}

func (e *entry) layer(count float64) (Layer, error) {
	l := Layer{Name: e.texts["name"]}
	if l.Name == "" {
		return l, e.fail("name", "nothing", "the name of a layer", "")
	}
	if _, ok := e.numbers["count"]; ok {
		return l, e.fail("count", "a second count", "one, at the start", "")
	}
	var err error
	if l.Time, err = e.time("averageMs"); err != nil {
		return l, err
	}
	total, ok := e.numbers["timeMs"]
	if !ok || !(total >= 0) {
		return l, e.fail("timeMs", "no time over all iterations", "milliseconds of 0 or more", "")
	}
	// Figures have six digits. A layer under a condition runs in some of the
	// iterations only: its mean is over those.
	mean := e.numbers["averageMs"]
	if total-mean*count > 1e-3*total+1e-6 {
		return l, e.fail("timeMs", "the number "+strconv.FormatFloat(total, 'g', -1, 64), fmt.Sprintf("at most averageMs times the %g iterations, %.6g", count, mean*count), "")
	}
	sometimes := mean*count-total > 1e-2*total+1e-6
	if share, ok := e.numbers["percentage"]; ok && !(share >= 0 && share <= 100.1) {
		return l, e.fail("percentage", "the number "+strconv.FormatFloat(share, 'g', -1, 64), "a percentage", "")
	}
	switch _, median := e.numbers["medianMs"]; {
	case sometimes:
		l.Time = time.Duration(math.Round(total / count * 1e6))
	case median:
		l.Time, err = e.time("medianMs")
	}
	return l, err
}
