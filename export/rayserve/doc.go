// Package rayserve exports plans of pools and of cascades as a configuration of Ray Serve, with a module in Python that
// runs their ONNX models.
package rayserve
