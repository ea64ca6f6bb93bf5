package steps

import (
	"fmt"
	"slices"

	"inferplan/engine"
)

// Tensors are the tensors of a module, without the size of the batch dimension: the inputs and outputs of its model,
// what the client sends, and the outputs of other modules that it reads, in order.
type Tensors struct {
	ModelInputs, ModelOutputs, ClientInputs, ModuleInputs []engine.Spec
	// Passages are the passages of a module with the step passages. PassageCount is the number of them in a prompt.
	Passages     *Passages
	PassageCount int
}

// BoundPre computes the i-th input of a sample. If its module runs on several items, item is the number of the item; the
// inputs that it reads may hold all items.
type BoundPre func(i int, item int64, dst []byte, client, read [][]byte)

// BoundPost computes the outputs of a sample from those of the model, and returns the path that the request takes.
type BoundPost func(dst, outputs [][]byte) (path int32)

// preStep is a step before a model.
type preStep struct {
	// clientSpecs returns what the client sends if the module is the first. If it is nil, the client sends the inputs
	// of the model.
	clientSpecs func(t *Tensors) ([]engine.Spec, error)
	bind        func(t *Tensors) (BoundPre, error)
	clientText  bool // the client sends a text
}

// postStep is a step after a model. bind returns the form of its outputs, which other modules read in place of the
// model's.
type postStep struct {
	bind  func(t *Tensors) ([]engine.Spec, BoundPost, error)
	paths int32 // number of paths that it distinguishes
}

// preSteps are the steps before models, by name.
var preSteps = map[string]preStep{
	"client":      {bind: bindClient},
	"ocr-image":   {clientSpecs: imageSpecs, bind: bindImage},
	"ocr-line":    {bind: bindLine},
	"ocr-upright": {bind: bindUpright},
	"passages":    {bind: bindPassages},
	"text-words":  {clientSpecs: textSpecs, bind: bindWords, clientText: true},
}

// postSteps are the steps after models, by name.
var postSteps = map[string]postStep{
	"ocr-box":   {bind: bindBox, paths: 2},
	"ocr-boxes": {bind: bindBoxes, paths: 2},
	"ocr-text":  {bind: bindText, paths: 1},
}

// ClientSpecs returns what the client sends to a module at which requests enter, which has the named step.
func ClientSpecs(name string, t *Tensors) ([]engine.Spec, error) {
	s, ok := preSteps[name]
	switch {
	case name == "" || ok && s.clientSpecs == nil:
		return t.ModelInputs, nil
	case !ok:
		return nil, fmt.Errorf("the step %q is unknown", name)
	}
	return s.clientSpecs(t)
}

// BindPre binds a step before a model. If name is empty, it returns nil.
func BindPre(name string, t *Tensors) (BoundPre, error) {
	s, ok := preSteps[name]
	switch {
	case name == "":
		return nil, nil
	case !ok:
		return nil, fmt.Errorf("the step %q is unknown", name)
	}
	return s.bind(t)
}

// BindPost binds a step after a model and returns the form of its outputs. If name is empty, the outputs are the
// model's, and the BoundPost is nil.
func BindPost(name string, t *Tensors) ([]engine.Spec, BoundPost, error) {
	s, ok := postSteps[name]
	switch {
	case name == "":
		return t.ModelOutputs, nil, nil
	case !ok:
		return nil, nil, fmt.Errorf("the step %q is unknown", name)
	}
	return s.bind(t)
}

// PathCount returns the number of paths that a step after a model distinguishes.
func PathCount(name string) int32 { return max(1, postSteps[name].paths) }

// bindClient binds the step that gives the model what the client has sent.
func bindClient(t *Tensors) (BoundPre, error) {
	if !slices.EqualFunc(t.ClientInputs, t.ModelInputs, sameForm) {
		return nil, fmt.Errorf("the step client: the client sends %v, the model takes %v", t.ClientInputs, t.ModelInputs)
	}
	return func(i int, _ int64, dst []byte, client, _ [][]byte) { copy(dst, client[i]) }, nil
}

// sameForm reports whether two tensors have the same type and shape, except for the batch.
func sameForm(a, b engine.Spec) bool {
	return a.Type == b.Type && slices.Equal(a.Shape[1:], b.Shape[1:])
}

// singleTensor returns the only tensor of a list, which must have a type and a number of dimensions.
func singleTensor(context string, list []engine.Spec, datatype engine.DType, dims int) (engine.Spec, error) {
	if len(list) != 1 || list[0].Type != datatype || len(list[0].Shape) != dims {
		return engine.Spec{}, fmt.Errorf("%s: found %v, expected one of %v with %d dimensions", context, list, datatype, dims)
	}
	return list[0], nil
}
