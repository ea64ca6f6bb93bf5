package graph

import (
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
	"inferplan/formats/modelfile"
)

// Weights in files beside the model (external data) stay there: a written model names the same files, and the
// engine maps them. Small tensors are read at once, because shapes may be computed from them.
const smallOutside = 1 << 20

// isOutside reports whether a tensor's values are in another file.
func isOutside(t *onnxpb.Tensor) bool {
	return t.GetDataLocation() == onnxpb.Tensor_EXTERNAL || len(t.GetExternalData()) > 0
}

// fileRegion is the part of a file that holds a tensor's values.
type fileRegion struct {
	file           string // relative to the model's folder
	offset, length int64
}

// fileRegionOf returns where the values of a tensor lie in a file beside the model, from the keys location, offset
// and length that ONNX defines. A file outside the model's folder, or a length that does not fit the shape, is an
// error.
func fileRegionOf(t *onnxpb.Tensor) (r fileRegion, err error) {
	label := "initialiser " + t.GetName()
	n := elementCount(t.Dims)
	size := int64(engine.DType(t.GetDataType()).Size())
	if n < 0 || n > maxElements {
		return r, modelErrorf("%s has impossible dimensions %v", label, t.Dims)
	}

	// Read the keys. Without a length, it is that of the values.
	r.length = -1
	for _, p := range t.ExternalData {
		switch p.GetKey() {
		case "location":
			r.file = filepath.FromSlash(p.GetValue())
		case "offset":
			r.offset, err = strconv.ParseInt(p.GetValue(), 10, 64)
		case "length":
			r.length, err = strconv.ParseInt(p.GetValue(), 10, 64)
		}
		if err != nil {
			return r, modelErrorf("%s: %s of its values is %q, expected a number", label, p.GetKey(), p.GetValue())
		}
	}
	if r.length < 0 && size > 0 {
		r.length = n * size
	}
	switch {
	case !filepath.IsLocal(r.file):
		return r, modelErrorf("%s keeps its values in the file %q, expected one beside the model or below it", label, r.file)
	case r.offset < 0 || r.length < 0 || size > 0 && r.length != n*size:
		return r, modelErrorf("%s has %d bytes at %d of %s, %d are expected for %s%v", label, r.length, r.offset, r.file, n*size, engine.DType(t.GetDataType()), t.Dims)
	}
	return r, nil
}

// openWeights checks that the files of weights that a graph names exist and are long enough. It reads small tensors
// into the graph, adds the identity of the files to the hash, and returns their names. Tensors of at most
// smallOutside bytes are small: they may be shapes, which the analysis of the graph needs.
func openWeights(g *onnxpb.Graph, folder string, h hash.Hash) ([]string, error) {
	files := map[string]*os.File{}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var names []string
	for _, t := range g.GetInitializer() {
		if !isOutside(t) {
			continue
		}

		// Open the file, and check that it holds the tensor.
		r, err := fileRegionOf(t)
		if err != nil {
			return nil, err
		}
		if folder == "" {
			return nil, modelErrorf("initialiser %s keeps its values in the file %s: open the model from its folder", t.GetName(), r.file)
		}
		f := files[r.file]
		if f == nil {
			switch f, err = os.Open(filepath.Join(folder, r.file)); {
			case errors.Is(err, fs.ErrNotExist):
				return nil, modelErrorf("its weights are in the file %s, which is not beside it: copy it there, too", r.file)
			case err != nil:
				return nil, fmt.Errorf("open the model's weights: %w", err)
			}
			files[r.file], names = f, append(names, r.file)
		}
		st, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("open the model's weights: %w", err)
		}
		if fileSize := st.Size(); r.offset > fileSize-r.length {
			return nil, modelErrorf("initialiser %s ends at byte %d of %s, which has %d: the file is truncated or of another model", t.GetName(), r.offset+r.length, r.file, fileSize)
		}
		if r.length > smallOutside {
			continue
		}

		// Read small tensors.
		data := make([]byte, r.length)
		if _, err := f.ReadAt(data, r.offset); err != nil {
			return nil, fmt.Errorf("read the model's weights: %w", err)
		}
		t.RawData, t.ExternalData, t.DataLocation = data, nil, nil
	}

	// Add the files to the hash.
	slices.Sort(names)
	for _, name := range names {
		if err := modelfile.Sample(files[name], name, h); err != nil {
			return nil, fmt.Errorf("read the model's weights: %w", err)
		}
	}
	return names, nil
}

// weightFiles returns the files, with slashes and sorted, that hold weights of the given compute nodes.
func (n *sortedGraph) weightFiles(nodes []int) []string {
	var files []string
	names, _ := n.constants(nodes)
	for _, name := range names {
		t := n.inits[name]
		if t == nil || !isOutside(t) {
			continue
		}
		r, err := fileRegionOf(t)
		if file := filepath.ToSlash(r.file); err == nil && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files
}

// readOutside returns a tensor with its values, which it reads if they are in another file.
func (m *Model) readOutside(t *onnxpb.Tensor) (*onnxpb.Tensor, error) {
	if !isOutside(t) {
		return t, nil
	}
	r, err := fileRegionOf(t)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(m.folder, r.file))
	if err != nil {
		return nil, fmt.Errorf("read the model's weights: %w", err)
	}
	defer f.Close()
	data := make([]byte, r.length)
	if _, err := f.ReadAt(data, r.offset); err != nil {
		return nil, fmt.Errorf("read the model's weights: %w", err)
	}
	return &onnxpb.Tensor{Name: t.Name, DataType: t.DataType, Dims: t.Dims, RawData: data}, nil
}

// placeholderNode returns the node that replaces a large weight in a probe, and the constant shape that it reads.
// The node makes a tensor of the same type and shape, filled with 0.01 (or zeros, if the type is not float32): only
// shapes matter there.
func placeholderNode(name string, t engine.DType, dims []int64) (*onnxpb.Tensor, *onnxpb.Node) {
	shapeName := name + "/shape"
	value := make([]byte, t.Size())
	if t == engine.F32 {
		value, _ = Literal{Values: []float64{0.01}}.Bytes(t)
	}
	return int64Tensor(shapeName, dims, []int64{int64(len(dims))}), &onnxpb.Node{OpType: proto.String("ConstantOfShape"), Input: []string{shapeName},
		Output: []string{name}, Name: proto.String(shapeName), Attribute: []*onnxpb.Attribute{tensorAttribute(&onnxpb.Tensor{DataType: proto.Int32(int32(t)), Dims: []int64{1}, RawData: value})}}
}
