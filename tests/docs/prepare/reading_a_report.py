import small_encoder

small_encoder.make()
job = small_encoder.validated("runs/good")
