package worker

import "maps"

var engines = map[string]Opener{"onnx": openONNX, "replay": openReplay}

// Engines lists the engines by name: onnx (which opens its library when a
// worker starts) and replay.
func Engines() map[string]Opener { return maps.Clone(engines) }
