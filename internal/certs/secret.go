package certs

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret, and annotations on it.
const (
	keyTrusted    = "ca.crt" // every CA that is trusted, the newest last
	keyCAKeys     = "ca.key"
	keyServing    = corev1.TLSCertKey
	keyServingKey = corev1.TLSPrivateKeyKey

	// AnnotationRotate on the Secret asks for a rotation; its value is a token of
	// the asker's choice, a new one for each rotation.
	AnnotationRotate = "holdfast.dev/rotate"
	// AnnotationRotated holds the token of the last rotation that was begun.
	AnnotationRotated = "holdfast.dev/rotated"
)

// fromSecret reads what a Secret says. An empty Secret says nothing.
func fromSecret(secret *corev1.Secret) (state, error) {
	trusted, err := parsePairs(secret.Data[keyTrusted], secret.Data[keyCAKeys])
	if err != nil {
		return state{}, fmt.Errorf("%s and %s: %w", keyTrusted, keyCAKeys, err)
	}
	serving, err := parsePairs(secret.Data[keyServing], secret.Data[keyServingKey])
	if err != nil {
		return state{}, fmt.Errorf("%s and %s: %w", keyServing, keyServingKey, err)
	}
	return state{trusted: trusted, serving: last(serving), rotated: secret.Annotations[AnnotationRotated]}, nil
}

// into writes the state to a Secret.
func (s state) into(secret *corev1.Secret) error {
	var trusted, keys bytes.Buffer
	for _, ca := range s.trusted {
		trusted.Write(ca.certPEM())
		if ca.key == nil {
			continue
		}
		key, err := ca.keyPEM()
		if err != nil {
			return err
		}
		keys.Write(key)
	}
	servingKey, err := s.serving.keyPEM()
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{
		keyTrusted: trusted.Bytes(), keyCAKeys: keys.Bytes(),
		keyServing: s.serving.certPEM(), keyServingKey: servingKey,
	}
	if s.rotated != "" {
		if secret.Annotations == nil {
			secret.Annotations = map[string]string{}
		}
		secret.Annotations[AnnotationRotated] = s.rotated
	}
	return nil
}
