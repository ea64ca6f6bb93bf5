package steps

import (
	"fmt"
	"slices"

	"inferplan/engine"
)

// Tensors are what a module deals with, without the batch dimension's size:
// what its model takes and gives, what the client sends, and what the modules give
// that it reads, one after the other.
type Tensors struct {
	Takes, Gives, Client, Reads []engine.Spec
	// Passages are those of a module with the step passages, which takes the Nearest.
	Passages *Passages
	Nearest  int
}

// Pre makes the i-th input of a sample. Where its module runs on several items, it is
// told which: what it reads may hold all of them.
type Pre func(i int, item int64, dst []byte, client, read [][]byte)

// Post makes the outputs of a sample from those of the model and tells which way
// is taken.
type Post func(dst, made [][]byte) (way int32)

// pre is a step before a model.
type pre struct {
	// sent is what the client sends where the module is the first; nil: what the
	// model takes.
	sent func(t *Tensors) ([]engine.Spec, error)
	bind func(t *Tensors) (Pre, error)
	text bool // what the client sends is a text
}

// post is a step behind a model. It says what others read in place of what the
// model gives.
type post struct {
	bind func(t *Tensors) ([]engine.Spec, Post, error)
	ways int32 // that it tells apart
}

var pres = map[string]pre{
	"client":      {bind: bindClient},
	"ocr-image":   {sent: sentImage, bind: bindImage},
	"ocr-line":    {bind: bindLine},
	"ocr-upright": {bind: bindUpright},
	"passages":    {bind: bindPassages},
	"text-words":  {sent: sentText, bind: bindWords, text: true},
}

var posts = map[string]post{
	"ocr-box":   {bind: bindBox, ways: 2},
	"ocr-boxes": {bind: bindBoxes, ways: 2},
	"ocr-text":  {bind: bindText, ways: 1},
}

// Sent is what the client sends to a module that requests enter at.
func Sent(name string, t *Tensors) ([]engine.Spec, error) {
	s, ok := pres[name]
	switch {
	case name == "" || ok && s.sent == nil:
		return t.Takes, nil
	case !ok:
		return nil, fmt.Errorf("the step %q is unknown", name)
	}
	return s.sent(t)
}

// BindPre binds a step before a model; nil without one.
func BindPre(name string, t *Tensors) (Pre, error) {
	s, ok := pres[name]
	switch {
	case name == "":
		return nil, nil
	case !ok:
		return nil, fmt.Errorf("the step %q is unknown", name)
	}
	return s.bind(t)
}

// BindPost binds a step behind a model and says what it gives; nil without one.
func BindPost(name string, t *Tensors) ([]engine.Spec, Post, error) {
	s, ok := posts[name]
	switch {
	case name == "":
		return t.Gives, nil, nil
	case !ok:
		return nil, nil, fmt.Errorf("the step %q is unknown", name)
	}
	return s.bind(t)
}

// Ways is how many ways a step behind a model tells apart.
func Ways(name string) int32 { return max(1, posts[name].ways) }

// bindClient has a module read what the client sent.
func bindClient(t *Tensors) (Pre, error) {
	if !slices.EqualFunc(t.Client, t.Takes, alike) {
		return nil, fmt.Errorf("the step client: the client sends %v, the model takes %v", t.Client, t.Takes)
	}
	return func(i int, _ int64, dst []byte, client, _ [][]byte) { copy(dst, client[i]) }, nil
}

// alike tells whether a tensor can stand in another's place.
func alike(a, b engine.Spec) bool {
	return a.Type == b.Type && slices.Equal(a.Shape[1:], b.Shape[1:])
}

// one is the only tensor of a list, of a type and with so many dimensions.
func one(what string, list []engine.Spec, of engine.DType, dims int) (engine.Spec, error) {
	if len(list) != 1 || list[0].Type != of || len(list[0].Shape) != dims {
		return engine.Spec{}, fmt.Errorf("%s: found %v, expected one of %v with %d dimensions", what, list, of, dims)
	}
	return list[0], nil
}
