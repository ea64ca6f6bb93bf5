package trtexec

import "strings"

// benchmark is trtexec as the profiler sees it.
type benchmark struct{}

// Name returns the name of the tool.
func (benchmark) Name() string { return "trtexec" }

// Provider returns the execution provider, as the profile names it.
func (benchmark) Provider() string { return "tensorrt" }

// Method returns how trtexec measured.
func (benchmark) Method() string {
	return "trtexec: median over its iterations, with the copies between host and device that its times have"
}

// OperatorNames returns the operators that a layer's name may stand for. TensorRT joins the names of a fused layer
// with " + " (one after the other), " || " (side by side) and ", " inside PWN(…) (pointwise), and writes
// {ForeignNode[a...b]} for the operators from a to b.
func (benchmark) OperatorNames(layer string) []string {
	if strings.HasPrefix(layer, "Reformatting CopyNode") || strings.HasPrefix(layer, "copied ") {
		return nil // the name is that of a neighbour
	}
	name := strings.NewReplacer("{ForeignNode[", "\x00", "]}", "\x00", "PWN(", "\x00", " + ", "\x00", " || ", "\x00", "...", "\x00").Replace(layer)
	out := []string{layer}
	for _, part := range strings.Split(name, "\x00") {
		// An operator's name may itself contain ", ", so try the whole part, too.
		for _, p := range append(strings.Split(part, ", "), part) {
			if p = strings.TrimSpace(p); p == "" {
				continue
			}
			out = append(out, p)
			// Closing brackets belong to pointwise groups or to the name, so try with each number of them.
			for q, ok := strings.CutSuffix(p, ")"); ok; q, ok = strings.CutSuffix(q, ")") {
				out = append(out, q)
			}
		}
	}
	return out
}
