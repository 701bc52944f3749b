# tamp_add_model: an ONNX model as a library target of your own CMake project.
#
#   find_package(tamp CONFIG REQUIRED)              # of an installed tamp; without one: include(<tamp>/cmake/TampModel.cmake)
#   tamp_add_model(resnet50 MODEL resnet50.onnx [VDEVICE auto|h200|FILE.json] [PRECISION tf32] [ACTIVATIONS fp32] [POLICY best]
#                  [EXECUTION persistent] [SCHEDULE FILE] [RECORDS FILE|none] [BATCH 1,8] [DIMS sequence=128 ...] [FREEZE mask=mask.npy ...]
#                  [EMBED_WEIGHTS])
#   target_link_libraries(my_program PRIVATE resnet50)      # and #include "resnet50.h"
#
# The options are those of `tamp compile` (its --help explains them). Without VDEVICE it is auto, this machine's GPU or h200, and CMake says
# which. With one BATCH the model has that batch and its own name. Several, as in BATCH 1,8, are several models: resnet50_b1 and resnet50_b8,
# each with a header (resnet50_b8.h), functions and weights of its own; the target resnet50 then has no header and links all of them.
# BATCH 1:8, or DIMS sequence=1:512, is one model whose runs say which (docs/howto/lengths.md).
#
# `tamp compile` runs when CMake configures, again whenever one of the files that it reads changes (the model, its external weights, a
# vDevice, schedule or records in a file) or tamp itself does; files that come out the same keep their time stamps, so nothing is built twice.
#
# TAMP_CUDA_ON_CPU: ON builds for the CPU, with tamp's stand-in for CUDA; a folder is that of another stand-in. It needs libboost-context-dev.
# TAMP_EXECUTABLE: the program, if it is neither that of the installation nor in PATH.
include_guard(GLOBAL)

# The folder that an installed tamp lies in, found from this file; empty where this is tamp's source tree.
function(_tamp_find_prefix result)
  get_filename_component(here ${CMAKE_CURRENT_FUNCTION_LIST_FILE} REALPATH)  # /lib may be a link to /usr/lib
  get_filename_component(here ${here} DIRECTORY)
  set(prefix "")
  if(EXISTS ${here}/tampConfig.cmake)
    get_filename_component(prefix ${here}/../../.. ABSOLUTE)
  endif()
  set(${result} ${prefix} PARENT_SCOPE)
endfunction()

# Makes a folder of the stand-in for TAMP_CUDA_ON_CPU=ON.
function(_tamp_find_stand_in variable)
  string(TOUPPER "${${variable}}" value)
  if(value MATCHES "^(1|ON|YES|TRUE|Y)$")
    _tamp_find_prefix(prefix)
    if(prefix)
      set(${variable} ${prefix}/share/tamp/cuda_on_cpu PARENT_SCOPE)
    else()
      get_filename_component(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../runtime_stub/cuda_on_cpu ABSOLUTE)
      set(${variable} ${folder} PARENT_SCOPE)
    endif()
  endif()
endfunction()

# The files behind the colon in a file that `tamp compile --depfile` wrote, as a list.
function(_tamp_read_depfile depfile result)
  file(READ ${depfile} text)
  string(REGEX REPLACE "\n$" "" text "${text}")
  string(REPLACE " \\\n  " ";" files "${text}")
  list(POP_FRONT files)
  string(REPLACE "\\ " " " files "${files}")
  string(REPLACE "\\#" "#" files "${files}")
  string(REPLACE "$$" "$" files "${files}")
  set(${result} "${files}" PARENT_SCOPE)
endfunction()

# One model: NAME, the absolute path of its file, options of `tamp compile`.
function(_tamp_compile_model name model)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/tamp/${name})
  set(fresh ${folder}.new)
  file(REMOVE_RECURSE ${fresh})
  execute_process(COMMAND ${TAMP_EXECUTABLE} compile ${model} -o ${fresh} --depfile ${folder}.d -q --name ${name} ${ARGN}
    RESULT_VARIABLE failed ERROR_VARIABLE message)
  if(failed)
    message(FATAL_ERROR "tamp_add_model(${name}): ${failed}: ${message}")
  endif()
  file(MAKE_DIRECTORY ${folder})
  file(GLOB files RELATIVE ${fresh} ${fresh}/*)
  foreach(file IN LISTS files)
    file(COPY_FILE ${fresh}/${file} ${folder}/${file} ONLY_IF_DIFFERENT)
  endforeach()
  file(REMOVE_RECURSE ${fresh})
  file(STRINGS ${folder}/${name}.cu planned LIMIT_COUNT 1 REGEX "^// vDevice ")
  string(REGEX REPLACE "^// vDevice ([^ ]+) .*" "\\1" planned "${planned}")
  message(STATUS "tamp: ${name} is compiled for vDevice ${planned}")
  _tamp_read_depfile(${folder}.d read)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${read})
  add_subdirectory(${folder} ${folder}/build)
endfunction()

function(tamp_add_model name)
  set(valued VDEVICE PRECISION ACTIVATIONS POLICY EXECUTION SCHEDULE RECORDS)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EMBED_WEIGHTS" "MODEL;${valued}" "BATCH;DIMS;FREEZE")
  if(NOT arg_MODEL OR arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "tamp_add_model(${name}): expected MODEL FILE.onnx and known options with their values, found: "
      "${arg_UNPARSED_ARGUMENTS} ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT TAMP_EXECUTABLE)
    _tamp_find_prefix(prefix)
    if(prefix)
      set(TAMP_EXECUTABLE ${prefix}/bin/tamp)  # not in the cache: another installation may be found tomorrow
    endif()
  endif()
  find_program(TAMP_EXECUTABLE tamp REQUIRED)
  _tamp_find_stand_in(TAMP_CUDA_ON_CPU)
  get_filename_component(model ${arg_MODEL} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})

  set(options "")
  foreach(option IN LISTS valued)
    if(arg_${option})
      string(TOLOWER ${option} flag)
      if(option MATCHES "VDEVICE|RECORDS|SCHEDULE" AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${arg_${option}})
        set(arg_${option} ${CMAKE_CURRENT_SOURCE_DIR}/${arg_${option}})
      endif()
      list(APPEND options --${flag} ${arg_${option}})
    endif()
  endforeach()
  foreach(dim IN LISTS arg_DIMS)
    list(APPEND options --dim ${dim})
  endforeach()
  foreach(frozen IN LISTS arg_FREEZE)
    if(frozen MATCHES "^([^=]+)=(.+)$")
      get_filename_component(file ${CMAKE_MATCH_2} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
      set(frozen ${CMAKE_MATCH_1}=${file})
    endif()
    list(APPEND options --freeze ${frozen})
  endforeach()
  if(arg_EMBED_WEIGHTS)
    list(APPEND options --embed-weights)
  endif()

  # Before anything can fail: CMake then also notices when the user has mended the model.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${model} ${TAMP_EXECUTABLE})
  string(REPLACE "," ";" batches "${arg_BATCH}")
  list(LENGTH batches count)
  if(count EQUAL 0)
    _tamp_compile_model(${name} ${model} ${options})
  elseif(count EQUAL 1)
    _tamp_compile_model(${name} ${model} --batch ${batches} ${options})
  else()
    add_library(${name} INTERFACE)
    foreach(batch IN LISTS batches)
      _tamp_compile_model(${name}_b${batch} ${model} --batch ${batch} ${options})
      target_link_libraries(${name} INTERFACE ${name}_b${batch})
    endforeach()
  endif()
endfunction()
